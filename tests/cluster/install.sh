#!/bin/sh
exec "$(dirname "$0")/../install.sh" "the cluster tests" <<'END'
openmpi-bin mpirun
openssh-server sshd
openssh-client ssh ssh-keygen
slurm-wlm slurmctld slurmd sbatch srun scancel squeue scontrol sinfo
munge munged
iproute2 ip ss tc
util-linux nsenter unshare setpriv
hostname hostname
kubernetes-client kubectl
END
