"""Builds the library with cargo and puts it into the wheel. The wheel serves every Python: it has no extension module."""

import json
import subprocess
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CargoBuild(BuildHookInterface):
    """`cargo build` before the files are gathered."""

    def initialize(self, version, build_data):
        command = ["cargo", "build", "--release", "--package", "barewave-onnxruntime-ep"]
        try:
            out = subprocess.run(
                [*command, "--message-format=json-render-diagnostics"], cwd=self.root, stdout=subprocess.PIPE, check=True
            ).stdout
        except FileNotFoundError:
            raise SystemExit("cargo is not installed: https://rustup.rs") from None
        except subprocess.CalledProcessError as e:
            raise SystemExit(f"{' '.join(command)} failed with status {e.returncode}") from None
        messages = map(json.loads, out.splitlines())
        made = [m for m in messages if m["reason"] == "compiler-artifact" and "cdylib" in m["target"]["kind"]]
        library = made[-1]["filenames"][0]
        name = library.replace("\\", "/").rpartition("/")[2]
        build_data["force_include"][library] = f"onnxruntime_ep_barewave/{name}"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
