#!/usr/bin/env python3
"""A kubelet and an API server for tests of belfry-dra. It uses grpcio, and encodes messages by itself.

dra.py REGISTRY COMMANDS CERTIFICATE TOKEN: prints the port of the API server (HTTPS). Then it reads commands from the named pipe
COMMANDS, one a line, and prints one line of JSON for each:
  info                              GetInfo of the socket that the driver has made in REGISTRY
  register                          NotifyRegistrationStatus
  claim NAME UID DEVICE=MEM/TIME... a claim with these devices; "-" in place of MEM/TIME: no amounts; no device: not allocated
  forget NAME                       the API server removes the claim
  prepare VERSION NAME UID...       NodePrepareResources: {UID: {"devices": ...} or {"error": ...}}
  unprepare VERSION NAME UID...
  raw METHOD HEX                    these bytes as the message
  slice                             the newest ResourceSlice, or null
  until GENERATION                  the slice, as soon as it has this generation
  wipe                              the slice is removed, as a kubelet does when it starts
  refuse CODE                       the API server answers everything with this code; 0: as usual
  end
"""
import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc

sys.dont_write_bytecode = True
from protobuf import decode, field

LIMIT_S = 240
DRIVER = "gpu.belfry.dev"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
VERSIONS = {"v1": "k8s.io.kubelet.pkg.apis.dra.v1", "v1beta1": "k8s.io.kubelet.pkg.apis.dra.v1beta1"}


class Api:
    """The objects that the API server has. It answers as the real one does: errors are objects of kind Status."""

    def __init__(self, token):
        self.token, self.code = token, 0
        self.claims, self.slice, self.version = {}, None, 0
        self.changed = threading.Condition()

    def answer(self, method, path, token, body):
        if token != f"Bearer {self.token}":
            return 401, {"kind": "Status", "message": "Unauthorized"}
        if self.code:
            return self.code, {"kind": "Status", "message": "refused by the test"}
        with self.changed:
            return self.store(method, path, body)

    def store(self, method, path, body):
        missing = 404, {"kind": "Status", "message": f"{path} not found"}
        if method == "GET" and path.startswith("/apis/resource.k8s.io/v1/namespaces/lab/resourceclaims/"):
            claim = self.claims.get(path.rsplit("/", 1)[1])
            return (200, claim) if claim else missing
        if method == "GET" and path == "/api/v1/nodes/node-1":
            return 200, {"metadata": {"name": "node-1", "uid": "4f9a"}}
        name = self.slice and self.slice["metadata"]["name"]
        if method == "POST" and path == SLICES:
            if self.slice:
                return 409, {"kind": "Status", "message": "it exists"}
        elif not self.slice or path != f"{SLICES}/{name}":
            return missing
        elif method == "GET":
            return 200, self.slice
        elif method != "PUT" or body["metadata"].get("resourceVersion") != str(self.version):
            return 409, {"kind": "Status", "message": "the object has been modified"}
        self.version += 1
        self.slice = body
        self.slice["metadata"]["resourceVersion"] = str(self.version)
        self.changed.notify_all()
        return 201 if method == "POST" else 200, self.slice


def start_api(api, certificate):
    class Handler(BaseHTTPRequestHandler):
        def handle_one(self):
            count = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(count)) if count else None
            status, answer = api.answer(self.command, self.path, self.headers.get("Authorization"), body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = handle_one

        def log_message(self, *words):
            print(*words, file=sys.stderr)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def channel(path):
    """A connection of its own: one to a driver that was killed is not used again."""
    return grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)])


class Kubelet:
    def __init__(self, registry, api):
        self.api, self.registry = api, registry
        self.registration = self.service = None

    def register(self, method, message):
        call = self.registration.unary_unary(f"/pluginregistration.Registration/{method}")
        return decode(call(message, timeout=LIMIT_S, wait_for_ready=True))

    def info(self):
        self.registration = channel(f"{self.registry}/{DRIVER}-reg.sock")
        answer = self.register("GetInfo", b"")
        kind, name, endpoint = (answer[i][0].decode() for i in (1, 2, 3))
        self.service = channel(endpoint)
        return [kind, name, *(version.decode() for version in answer[4])]

    def claim(self, name, uid, *devices):
        claim = {"metadata": {"name": name, "namespace": "lab", "uid": uid}, "status": {}}
        results = []
        for i, one in enumerate(devices):
            device, amounts = one.split("=")
            result = {"request": f"r{i}/small", "driver": DRIVER, "pool": "node-1", "device": device}
            if amounts != "-":
                memory, time = amounts.split("/")
                result["consumedCapacity"] = {"memory": memory, "time": time}
            results += [{"request": "net", "driver": "other.example", "pool": "p", "device": "d"}, result]
        if results:
            claim["status"] = {"allocation": {"devices": {"results": results}}}
        self.api.claims[name] = claim

    def call(self, version, method, message):
        call = self.service.unary_unary(f"/{VERSIONS[version]}.DRAPlugin/{method}")
        return call(message, timeout=LIMIT_S, wait_for_ready=True)

    def claims(self, version, method, words):
        message = b""
        for name, uid in zip(words[::2], words[1::2]):
            message += field(1, field(1, "lab") + field(2, uid) + field(3, name))
        answer = {}
        for entry in decode(self.call(version, method, message)).get(1, []):
            entry = decode(entry)
            answer[entry[1][0].decode()] = decode(entry[2][0])
        return answer

    def prepare(self, version, *words):
        answer = {}
        for uid, value in self.claims(version, "NodePrepareResources", words).items():
            if 2 in value:
                answer[uid] = {"error": value[2][0].decode()}
                continue
            devices = [decode(device) for device in value[1]]
            answer[uid] = [[text.decode() for i in (1, 2, 3, 4) for text in device[i]] for device in devices]
        return answer

    def unprepare(self, version, *words):
        answers = self.claims(version, "NodeUnprepareResources", words)
        return {uid: value[1][0].decode() if 1 in value else "" for uid, value in answers.items()}

    def until(self, generation):
        def is_so():
            return self.api.slice and self.api.slice["spec"]["pool"]["generation"] == int(generation)

        with self.api.changed:
            if not self.api.changed.wait_for(is_so, LIMIT_S):
                return {"error": f"the slice is {self.api.slice}"}
        return self.api.slice

    def do(self, word, *rest):
        if word == "register":
            return self.register("NotifyRegistrationStatus", field(1, 1))
        if word == "slice":
            return self.api.slice
        if word == "wipe":
            self.api.slice = None
            return None
        if word == "forget":
            return self.api.claims.pop(rest[0])["metadata"]["uid"]
        if word == "refuse":
            self.api.code = int(rest[0])
            return None
        if word == "raw":
            return self.call("v1", rest[0], bytes.fromhex("".join(rest[1:]))).hex()
        return getattr(self, word)(*rest)


def main():
    registry, commands, certificate, token = sys.argv[1:]
    api = Api(token)
    port = start_api(api, certificate)
    kubelet = Kubelet(registry, api)
    print(port, flush=True)
    with open(commands, encoding="ascii") as lines:
        for line in lines:
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


main()
