#!/usr/bin/env python3
"""A kubelet for tests of belfry-device-plugin: Registration on FOLDER/kubelet.sock, and calls to the plugin's sockets.
It uses grpcio, and encodes messages by itself, so that a mistake of the plugin is not repeated here.

kubelet.py FOLDER COMMANDS: reads commands from the named pipe COMMANDS, one a line, and prints one line of JSON for each:
  wait RESOURCE...                 until these are registered
  list RESOURCE                    the newest devices: {ID: health}
  until RESOURCE HEALTHY ALL       until the newest list has that many
  ended RESOURCE                   until the plugin has ended ListAndWatch; the devices of its last list
  allocate RESOURCE ID...          [[container path, host path, read only], ...] or {"error": text}
  take RESOURCE COUNT              GetPreferredAllocation of the free devices, then Allocate; also {"ids": ...}
  free RESOURCE ID...              the devices are free again
  prefer RESOURCE COUNT ID...      GetPreferredAllocation of these devices
  options RESOURCE                 GetDevicePluginOptions as hex
  prestart RESOURCE ID             PreStartContainer
  method RESOURCE NAME             a method that does not exist
  many RESOURCE COUNT              that many calls of Allocate at once; how many succeeded
  restart                          as a kubelet that starts: all sockets of the folder are removed
  stop                             kubelet.sock is removed
  end
"""
import glob
import json
import os
import sys
import threading
import time
from concurrent import futures

import grpc

sys.dont_write_bytecode = True
from protobuf import decode, field

LIMIT_S = 240


class Plugin:
    """A registered resource."""

    def __init__(self, path, options):
        self.options = options
        self.devices, self.lists, self.changed = {}, 0, threading.Condition()
        self.used, self.last = set(), None
        self.channel = grpc.insecure_channel(f"unix:{path}")
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        try:
            for answer in self.channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"", wait_for_ready=True):
                devices = {}
                for one in decode(answer).get(1, []):
                    device = decode(one)
                    devices[device[1][0].decode()] = device[2][0].decode()
                with self.changed:
                    self.devices, self.lists = devices, self.lists + 1
                    self.changed.notify_all()
        except (grpc.RpcError, ValueError) as error:  # the plugin has ended
            print(f"watch: {error}".replace("\n", " ")[:200], file=sys.stderr)
            with self.changed:
                self.last = self.devices
                self.devices = {id: "Unhealthy" for id in self.devices}
                self.changed.notify_all()

    def call(self, method, message):
        return self.channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")(message, timeout=LIMIT_S)

    def until(self, healthy, count):
        def is_so():
            return len(self.devices) == count and list(self.devices.values()).count("Healthy") == healthy

        with self.changed:
            if not self.changed.wait_for(is_so, LIMIT_S):
                return {"error": f"devices: {self.devices}"}
        return {"lists": self.lists}

    def ended(self):
        with self.changed:
            if not self.changed.wait_for(lambda: self.last is not None, LIMIT_S):
                return {"error": "ListAndWatch has not ended"}
        return self.last

    def allocate(self, ids):
        answer = self.call("Allocate", field(1, b"".join(field(1, id) for id in ids)))
        (container,) = decode(answer)[1]
        mounts = [decode(mount) for mount in decode(container).get(2, [])]
        return [[m[1][0].decode(), m[2][0].decode(), m.get(3, [0])[0]] for m in mounts]

    def prefer(self, ids, count):
        inner = b"".join(field(1, id) for id in ids) + field(3, count)
        (container,) = decode(self.call("GetPreferredAllocation", field(1, inner)))[1]
        return [id.decode() for id in decode(container).get(1, [])]

    def take(self, count):
        free = sorted(id for id, health in self.devices.items() if health == "Healthy" and id not in self.used)
        if len(free) < count:
            return {"error": f"only {len(free)} devices are free"}
        ids = self.prefer(free, count)
        mounts = self.allocate(ids)
        self.used.update(ids)
        return {"ids": ids, "mounts": mounts}


class Kubelet:
    def __init__(self, folder):
        self.folder, self.server = folder, None
        self.plugins, self.changed = {}, threading.Condition()
        self.start()

    def start(self):
        handler = grpc.method_handlers_generic_handler(
            "v1beta1.Registration", {"Register": grpc.unary_unary_rpc_method_handler(self.register)}
        )
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers((handler,))
        assert self.server.add_insecure_port(f"unix:{self.folder}/kubelet.sock")
        self.server.start()

    def stop(self):
        self.server.stop(None).wait()
        for path in glob.glob(f"{self.folder}/kubelet.sock"):
            os.unlink(path)

    def restart(self):
        self.stop()
        self.plugins = {}
        for path in glob.glob(f"{self.folder}/*.sock"):
            os.unlink(path)
        self.start()

    def register(self, request, context):
        message = decode(request)
        version, endpoint, resource = (message[i][0].decode() for i in (1, 2, 3))
        if version != "v1beta1" or "/" in endpoint:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{version}, {endpoint}")
        with self.changed:
            self.plugins[resource] = Plugin(f"{self.folder}/{endpoint}", decode(message[4][0]))
            self.changed.notify_all()
        return b""

    def wait(self, *resources):
        with self.changed:
            if self.changed.wait_for(lambda: all(name in self.plugins for name in resources), LIMIT_S):
                return sorted(self.plugins)
        return {"error": f"registered: {sorted(self.plugins)}"}

    def do(self, word, *rest):
        if word in ("wait", "restart", "stop"):
            return getattr(self, word)(*rest)
        plugin, rest = self.plugins[rest[0]], rest[1:]
        if word == "list":
            return plugin.devices
        if word == "until":
            return plugin.until(*map(int, rest))
        if word == "ended":
            return plugin.ended()
        if word == "allocate":
            return plugin.allocate(rest)
        if word == "take":
            return plugin.take(int(rest[0]))
        if word == "free":
            return plugin.used.difference_update(rest)
        if word == "prefer":
            return plugin.prefer(rest[1:], int(rest[0]))
        if word == "options":
            return plugin.call("GetDevicePluginOptions", b"").hex()
        if word == "prestart":
            return plugin.call("PreStartContainer", field(1, rest[0])).hex()
        if word == "method":
            return plugin.call(rest[0], b"").hex()
        if word == "many":
            id = sorted(plugin.devices)[0]
            with futures.ThreadPoolExecutor(16) as pool:
                return sum(1 for mounts in pool.map(lambda _: plugin.allocate([id]), range(int(rest[0]))) if mounts)
        raise ValueError(word)


def main():
    kubelet = Kubelet(sys.argv[1])
    print('"ready"', flush=True)
    with open(sys.argv[2], encoding="ascii") as commands:
        for line in commands:
            words = line.split()
            if words == ["end"]:
                break
            try:
                answer = kubelet.do(*words)
            except grpc.RpcError as error:
                answer = {"error": error.details(), "code": error.code().name}
            except Exception as error:  # a test reads it
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
    kubelet.stop()


main()
