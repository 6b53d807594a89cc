"""A module that stands in for pynvml: cards as the file DLPERF_TEST_CARDS has them, one dictionary each.

uuid, name; clocks: MHz, one after the other as they are asked for, the last one for ever; watts; joules: whether it
counts them (watts since 1970); throttle: bits; pids: of processes that compute on it; parts: UUIDs, if it is divided.
"""

import json
import os
import time
from collections import namedtuple

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 0, 1, 0
Process, Memory = namedtuple("Process", "pid"), namedtuple("Memory", "used")


class NVMLError(Exception):
    pass


class Handle(dict):
    pass


def nvmlInit():
    global cards
    said = os.environ.get("DLPERF_TEST_NVML_FAILS")
    if said:
        raise NVMLError(said)
    with open(os.environ["DLPERF_TEST_CARDS"]) as file:
        cards = [Handle(card) for card in json.load(file)]


def nvmlDeviceGetCount():
    return len(cards)


def nvmlDeviceGetHandleByIndex(index):
    return cards[index]


def nvmlDeviceGetName(card):
    return card["name"]


def nvmlDeviceGetUUID(card):
    return card["uuid"].encode()  # as older releases of pynvml


def nvmlDeviceGetMigMode(card):
    if "parts" not in card:
        raise NVMLError("Not Supported")
    return [1, 1]


def nvmlDeviceGetMaxMigDeviceCount(card):
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(card, index):
    if index >= len(card["parts"]):
        raise NVMLError("Not Found")
    return Handle(uuid=card["parts"][index], name=card["name"] + " MIG 1g.10gb", pids=[])


def nvmlDeviceGetClockInfo(card, kind):
    if kind == NVML_CLOCK_MEM:
        return 2600
    return card["clocks"].pop(0) if len(card["clocks"]) > 1 else card["clocks"][0]


def nvmlDeviceGetPowerUsage(card):
    return card["watts"] * 1000


def nvmlDeviceGetTotalEnergyConsumption(card):
    if not card.get("joules"):
        raise NVMLError("Not Supported")
    return card["watts"] * 1000 * (time.time() % 1e6)


def nvmlDeviceGetTemperature(card, kind):
    return 61


def nvmlDeviceGetCurrentClocksThrottleReasons(card):
    return card.get("throttle", 1)


def nvmlDeviceGetMemoryInfo(card):
    return Memory(2**30)


def nvmlDeviceGetComputeRunningProcesses(card):
    return [Process(pid) for pid in card["pids"]]


def nvmlDeviceGetTotalEccErrors(card, kind, counter):
    raise NVMLError("Not Supported")
