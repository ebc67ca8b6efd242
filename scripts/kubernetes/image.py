#!/usr/bin/env python3
"""image.py OUT.tar NAME:TAG ENTRYPOINT-JSON [NAME:TAG ENTRYPOINT-JSON …] ROOT: a docker archive of images whose one layer
is ROOT (a folder or a tar of one). Leading NAME=VALUE words of an entry point become the image's environment."""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def main(out: str, *words: str) -> None:
    *pairs, root = words
    layer = Path(root).read_bytes() if Path(root).is_file() else _packed(root)
    digest = "sha256:" + hashlib.sha256(layer).hexdigest()
    images, members = [], [("layer.tar", layer)]
    for name, entrypoint in zip(pairs[::2], pairs[1::2], strict=True):
        content = json.dumps(_config(entrypoint, digest)).encode()
        config_name = hashlib.sha256(content).hexdigest() + ".json"
        images.append({"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]})
        members.append((config_name, content))
    with tarfile.open(out, "w") as archive:
        for member, data in [*members, ("manifest.json", json.dumps(images).encode())]:
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def _config(entrypoint: str, digest: str) -> dict[str, object]:
    words = json.loads(entrypoint)
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Env": [f"{name}={value}" for name, value in env.items()], "Entrypoint": words},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
        "history": [{"created": "1970-01-01T00:00:00Z"}],
    }


def _packed(root: str) -> bytes:
    def normalized(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(root, arcname=".", filter=normalized)
    return buffer.getvalue()


if __name__ == "__main__":
    main(*sys.argv[1:])
