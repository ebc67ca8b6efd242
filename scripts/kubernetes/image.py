#!/usr/bin/env python3
"""image.py OUT.tar NAME:TAG ENTRYPOINT-JSON ROOT: a docker archive whose one layer is ROOT (a folder or a tar of one)."""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def main(out: str, name: str, entrypoint: str, root: str) -> None:
    layer = Path(root).read_bytes() if Path(root).is_file() else _packed(root)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Entrypoint": json.loads(entrypoint)},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": "1970-01-01T00:00:00Z"}],
    }
    content = json.dumps(config).encode()
    config_name = hashlib.sha256(content).hexdigest() + ".json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(out, "w") as archive:
        for member, data in ((config_name, content), ("layer.tar", layer), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


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
