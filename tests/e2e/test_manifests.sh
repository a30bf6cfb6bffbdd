#!/bin/bash
# The manifests of contrib/kubernetes: that they are what kubectl expects, and that they agree with each other and with the
# programs.
# shellcheck disable=SC1091,SC2154
set -u
. "$(dirname "$0")/common.sh"
for python in python3 /usr/bin/python3 ''; do
	[ -n "$python" ] || skip "python3-yaml is not installed"
	! "$python" -c 'import yaml' 2>/dev/null || break
done
cd "${BELFRY_SOURCE_DIR:?}/contrib/kubernetes" || exit 1
"$python" - "$BELFRY_SOURCE_DIR" <<'P' || fail "the manifests"
import glob, re, sys
import yaml

source = sys.argv[1]
objects = {}
for path in sorted(glob.glob("*.yaml")):
    for one in yaml.safe_load_all(open(path)):
        assert one["apiVersion"] and one["kind"], path
        if one["kind"] == "Kustomization":
            listed = one["resources"]
            continue
        name = one["metadata"]["name"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name), name
        objects[one["kind"], name] = one

rbac = "rbac.authorization.k8s.io/v1"
resource = "resource.k8s.io/v1"
versions = {"DaemonSet": "apps/v1", "RuntimeClass": "node.k8s.io/v1", "Pod": "v1", "ServiceAccount": "v1",
            "ClusterRole": rbac, "ClusterRoleBinding": rbac, "DeviceClass": resource, "ResourceClaimTemplate": resource}
for (kind, name), one in objects.items():
    assert one["apiVersion"] == versions[kind], (kind, name)

daemon = objects["DaemonSet", "belfry-device-plugin"]["spec"]
runtime = objects["RuntimeClass", "belfry"]
pod = daemon["template"]["spec"]
labels = daemon["template"]["metadata"]["labels"]
assert daemon["selector"]["matchLabels"].items() <= labels.items(), "the selector selects the pods"
(container,) = pod["containers"]
volumes = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
assert volumes == mounts, "the plugin has the node's folders at the same paths: its answers name them"
main = open(f"{source}/src/kube/main.c").read()
assert f'"{volumes["device-plugins"]}"' in main, "the default folder"
assert '#define ATTACH_MARKS "/run/belfry/vgpus"' in open(f"{source}/src/attach/attach.h").read()
assert volumes["belfry"] == "/run/belfry"
for word in container["args"]:
    assert not word.startswith("--") or f'"{word[2:]}"' in main, word
version = re.search(r"version: '([^']*)'", open(f"{source}/meson.build").read())[1]
assert container["image"].endswith(":" + version), container["image"]
assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
assert pod["nodeSelector"] == runtime["scheduling"]["nodeSelector"], "pods run where the plugin runs"

toml = open("containerd.toml").read()
assert f'runtimes.{runtime["handler"]}]' in toml and "/usr/bin/belfry-oci" in toml, "the handler of the runtime class"

# The driver for claims: its folders, its rights, and the names by which the example finds it.
header = open(f"{source}/src/dra/dra.h").read()
driver = re.search(r'#define DRA_DRIVER "([^"]*)"', header)[1]
main = open(f"{source}/src/dra/main.c").read()
dra = objects["DaemonSet", "belfry-dra"]["spec"]
assert dra["selector"]["matchLabels"].items() <= dra["template"]["metadata"]["labels"].items()
dra = dra["template"]["spec"]
(container,) = dra["containers"]
volumes = {volume["name"]: volume["hostPath"]["path"] for volume in dra["volumes"]}
assert volumes == {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
assert all(f'"{volumes[name]}' in main for name in ("registry", "plugins", "cdi")), "the default folders"
assert container["command"] == ["/usr/libexec/belfry/belfry-dra"] and container["image"].endswith(":" + version)
assert [one["name"] for one in container["env"]] == ["NODE_NAME"] and 'getenv("NODE_NAME")' in main
assert all(not word.startswith("--") or f'"{word[2:]}"' in main for word in container["args"])
assert dra["nodeSelector"] == pod["nodeSelector"]
account = objects["ServiceAccount", "belfry-dra"]["metadata"]
binding = objects["ClusterRoleBinding", "belfry-dra"]
assert dra["serviceAccountName"] == account["name"] and binding["roleRef"]["name"] == "belfry-dra"
assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}]
rules = {name: rule["verbs"] for rule in objects["ClusterRole", "belfry-dra"]["rules"] for name in rule["resources"]}
assert rules == {"resourceclaims": ["get"], "resourceslices": ["get", "create", "update"], "nodes": ["get"]}
(selector,) = objects["DeviceClass", "belfry-gpu"]["spec"]["selectors"]
assert selector["cel"]["expression"] == f'device.driver == "{driver}"'
(request,) = objects["ResourceClaimTemplate", "part-of-a-gpu"]["spec"]["spec"]["devices"]["requests"]
assert ("DeviceClass", request["exactly"]["deviceClassName"]) in objects
assert set(request["exactly"]["capacity"]["requests"]) == {"memory", "time"}
claimed = objects.pop(("Pod", "claimed"))["spec"]
assert ("RuntimeClass", claimed["runtimeClassName"]) in objects
(claim,) = claimed["resourceClaims"]
assert ("ResourceClaimTemplate", claim["resourceClaimTemplateName"]) in objects
assert claimed["containers"][0]["resources"]["claims"] == [{"name": claim["name"]}]

examples = [one["spec"] for (kind, _), one in objects.items() if kind == "Pod"]
assert len(examples) == 2
for spec in examples:
    assert ("RuntimeClass", spec["runtimeClassName"]) in objects
    for one in spec["containers"]:
        limits = one["resources"]["limits"]
        assert limits and all(re.fullmatch(r"belfry\.dev/(memory-gib|time-percent|vgpu-[a-z0-9.-]+)", key) for key in limits)
        assert all(isinstance(value, int) and value > 0 for value in limits.values())
        assert "belfry.dev/time-percent" not in limits or "belfry.dev/memory-gib" in limits
assert sorted(listed) == ["device-plugin.yaml", "runtime-class.yaml"]
P
exit "$failed"
