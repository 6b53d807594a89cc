#!/bin/sh
# bert_base-fp32-oneflow-b4, repeat 1 of 3
case "$1" in
rank)
cd "$(dirname "$0")" &&
exec env \
  PYTHONPATH="$PWD"/../../../code \
  PYTHONNOUSERSITE=1 \
  PYTHONUNBUFFERED=1 \
  OMP_NUM_THREADS=2 \
  MALLOC_MMAP_THRESHOLD_=4294967296 \
  MALLOC_TRIM_THRESHOLD_=8589934592 \
  MALLOC_TOP_PAD_=67108864 \
  LD_LIBRARY_PATH=/cache/envs/oneflow-cpu-0123/nvidia/cudnn/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
  DLPERF_LAUNCHER=kubernetes \
  /cache/envs/oneflow-cpu-0123/bin/python -m dlperf.adapters.worker job.json .
exit
;;
node)
cd "$(dirname "$0")" &&
NODE_RANK="$JOB_COMPLETION_INDEX" NNODES=2 DLPERF_HOSTS=dlperf-bert-base-fp32-oneflow-b4-r1-c515a3-node-0-0.dlperf-bert-base-fp32-oneflow-b4-r1-c515a3,dlperf-bert-base-fp32-oneflow-b4-r1-c515a3-node-0-1.dlperf-bert-base-fp32-oneflow-b4-r1-c515a3 PYTHONPATH="$PWD"/../../../code \
exec /cache/envs/oneflow-cpu-0123/bin/python -m dlperf.adapters.spawn 2 sh "$PWD"/launch.sh rank
exit
;;
esac
if [ -e "$(dirname "$0")/events.rank0.jsonl" ]; then
command -v dlperf >/dev/null && exec dlperf repeat "$(dirname "$0")"
echo "This run was made. Again, in a new folder: python -m dlperf.repeat '$(dirname "$0")'" >&2
exit 1
fi
cd "$(dirname "$0")" || exit
rm -f rank*.json versions*.json
name=dlperf-bert-base-fp32-oneflow-b4-r1-c515a3
kubectl() { command kubectl "$@"; }
pods() { kubectl get pods -l "jobset.sigs.k8s.io/jobset-name=$name" -o 'jsonpath={range .items[*]}pod {.metadata.name} on {.spec.nodeName}: {.status.phase} {.status.reason} {.status.message}{.status.conditions[?(@.reason=="Unschedulable")].message}{.status.containerStatuses[*].state.waiting.reason}{"\n"}{end}' >&2; }
stop() { trap '' TERM INT; kubectl delete --ignore-not-found --wait=false "trainjob/$name" >&2; }
trap 'pods; stop; exit 143' TERM INT
cat > manifest.yaml <<MANIFEST
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: dlperf-bert-base-fp32-oneflow-b4-r1-c515a3, labels: {app: dlperf}}
spec:
  runtimeRef: {name: torch}
  trainer:
    numNodes: 2
    numProcPerNode: 2
    image: registry.example/dlperf:1
    command: [sh, "$PWD/launch.sh", node]
    resourcesPerNode: {requests: {cpu: "8"}, limits: {cpu: "8"}}
  runtimePatches:
  - manager: dlperf/launcher
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          - name: node
            template:
              spec:
                template:
                  spec:
                    containers:
                    - name: node
                      volumeMounts:
                      - {name: shared, mountPath: /bench}
                      - {name: shm, mountPath: /dev/shm}
                    volumes:
                    - {name: shared, persistentVolumeClaim: {claimName: bench}}
                    - {name: shm, emptyDir: {medium: Memory}}
MANIFEST
kubectl apply -f manifest.yaml >&2 || { stop; exit 1; }
while :; do
  state="$(kubectl get "trainjob/$name" -o 'jsonpath={.status.conditions[?(@.status=="True")].type}')"
  case "$state" in
  *Complete*) code=0; break ;;
  *Failed*) code=1; break ;;
  esac
  sleep 2 & wait $!
done
kubectl logs --prefix --tail=200 -l "jobset.sigs.k8s.io/jobset-name=$name" >&2
[ $code = 0 ] || pods
stop
exit $code
