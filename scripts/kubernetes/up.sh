#!/usr/bin/env bash
# Starts a real single-node Kubernetes for the tests, in a mount and a network namespace of its own.
#
# Nothing outside those namespaces can reach it, and it cannot reach the network: its server programs get no security
# fixes. Workspace images are docker archives in $lab/images; nothing is pulled. Commands run inside by exec.sh.
# CODEHUB_KUBERNETES_NODE_GRACE: how long its kubelet may be silent before the node counts as lost (20s).
# CODEHUB_KUBERNETES_CONTROL_ONLY=1 starts no kubelet: pods stay Pending, which is enough for thousands of them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
[ "$(id -u)" = 0 ] || die "a node needs root: namespaces, cgroups and a bridge"
if [ "${1:-}" != inside ]; then
    "$here/build.sh"
    is_up() {
        local file
        [ -e "$lab/run/ready" ] || return 1
        for file in "$lab"/run/pid/*; do [ -d "/proc/$(cat "$file")" ] || return 1; done
        "$here/exec.sh" kubectl get --raw /readyz
    }
    ! is_up > /dev/null 2>&1 || exit 0
    "$here/down.sh" || die "the last node's processes are still there"
    mkdir -p "$lab"
    exec unshare -m -n --propagation private "$here/up.sh" inside
fi

programs=$prefix/bin run=$lab/run pki=$lab/pki
bridge=kb0 gateway=10.246.0.1 pods=10.246.0.0/24 services=10.98.0.0/16 api_service=10.98.0.1 dns_service=10.98.0.10
api=https://127.0.0.1:6443 containerd=$lab/containerd/c.sock
# Whose directories the volumes of the test's storage class are: the hostPath plug-in applies no fsGroup, so volumes that
# belonged to root would be closed to workspaces, which run as this user.
volume_user=1000
export PATH=$programs:$prefix/usr/bin:$prefix/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin KUBECONFIG=$lab/kubeconfig
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY || true
started=$SECONDS
step() { say "$((SECONDS - started)) s: $*"; }
# wait_for WHAT COMMAND…: generously, because other work may keep this machine busy.
wait_for() {
    local what=$1 limit=300 began=$SECONDS said=$SECONDS
    shift
    until "$@" >/dev/null 2>&1; do
        if [ $((SECONDS - began)) -ge $limit ]; then
            tail -n 5 "$run"/log/*.log >&2
            die "$what is not there after $limit s; see $run/log"
        fi
        [ $((SECONDS - said)) -lt 30 ] || { said=$SECONDS; step "still waiting: $what"; }
        sleep 0.2
    done
    step "$what"
}
# start NAME COMMAND…: its pid and its log are in $run; restart.sh uses the recorded command line.
start() {
    local name=$1
    shift
    printf '%s\0' "$@" > "$run/command/$name"
    setsid "$@" > "$run/log/$name.log" 2>&1 < /dev/null 9>&- &
    echo $! > "$run/pid/$name"
}

mkdir -p "$run"/{pid,log,command,etcd,sys} "$lab/kubelet" "$lab/cni/net.d" "$lab/containerd" "$lab/volumes" "$lab/images"
chmod 700 "$run/etcd"
chown $volume_user:$volume_user "$lab/volumes"
# Directories that the programs use under fixed names, and that another node or Docker may use on this machine too.
for directory in /run/containerd /var/lib/cni /var/lib/kubelet /var/log/containers /var/log/pods; do
    mkdir -p "$directory" "$lab/private$directory"
    mount --bind "$lab/private$directory" "$directory"
done
mkdir -p /tmp/hostpath_pv
mount --bind "$lab/volumes" /tmp/hostpath_pv
# The kubelet sets these, and they are the whole machine's: it gets files that already hold what it wants.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=$run/sys/$(echo "${setting%%=*}" | tr / .)
    echo "${setting#*=}" > "$file"
    mount --bind "$file" "/proc/sys/${setting%%=*}"
done
mount --make-rshared /
[ -e "$lab/images/pause.tar" ] || "$here/pause-image.sh"

ip link set lo up
ip link add $bridge type bridge
ip addr add $gateway/24 dev $bridge
ip link set $bridge up
# There is no kube-proxy: the one service that matters, the API server's own, is an address of the node.
ip addr add $api_service/32 dev $bridge
iptables -t nat -A PREROUTING -d $api_service -p tcp --dport 443 -j DNAT --to-destination $gateway:6443 2>/dev/null || true
ip route add default dev $bridge 2>/dev/null || true
sysctl -qw net.ipv4.ip_forward=1

if [ ! -e "$pki/complete" ]; then
    rm -rf "$pki"
    mkdir -p "$pki"
    chmod 700 "$pki"
    key() { openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$1.key" 2>/dev/null; }
    authority() {
        key "$1"
        openssl req -x509 -new -key "$pki/$1.key" -subj "/CN=$1" -days 3650 -out "$pki/$1.crt" -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
    }
    # certificate NAME SUBJECT USAGE [ALTERNATIVE NAMES] [AUTHORITY]
    certificate() {
        key "$1"
        openssl req -new -key "$pki/$1.key" -subj "$2" -out "$pki/$1.csr" 2>/dev/null
        { printf 'basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=%s\n' "$3"; [ -z "${4:-}" ] || echo "subjectAltName=$4"; } > "$pki/$1.ext"
        openssl x509 -req -in "$pki/$1.csr" -CA "$pki/${5:-ca}.crt" -CAkey "$pki/${5:-ca}.key" -CAcreateserial -days 3650 -extfile "$pki/$1.ext" -out "$pki/$1.crt" 2>/dev/null
        rm -f "$pki/$1.csr" "$pki/$1.ext"
    }
    authority ca
    authority front-proxy-ca
    certificate apiserver /CN=kube-apiserver serverAuth "IP:127.0.0.1,IP:$gateway,IP:$api_service,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    certificate kubelet-server "/O=system:nodes/CN=system:node:$node" serverAuth "IP:127.0.0.1,IP:$gateway,DNS:localhost,DNS:$node"
    certificate kubelet-client "/O=system:nodes/CN=system:node:$node" clientAuth
    certificate apiserver-kubelet "/O=system:masters/CN=kube-apiserver-kubelet-client" clientAuth
    certificate front-proxy /CN=front-proxy-client clientAuth "" front-proxy-ca
    certificate controller-manager /CN=system:kube-controller-manager clientAuth
    certificate scheduler /CN=system:kube-scheduler clientAuth
    certificate admin "/O=system:masters/CN=admin" clientAuth
    openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
    openssl rsa -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
    touch "$pki/complete"
fi
kubeconfig() { # USER FILE
    (
        umask 077
        cat > "$2" <<X
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "$api", certificate-authority-data: $(base64 -w0 < "$pki/ca.crt")}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 < "$pki/$1.crt"), client-key-data: $(base64 -w0 < "$pki/$1.key")}}]
contexts: [{name: test, context: {cluster: test, user: $1, namespace: default}}]
current-context: test
X
    )
}
kubeconfig admin "$lab/kubeconfig"
for name in controller-manager scheduler kubelet-client; do kubeconfig $name "$run/$name.kubeconfig"; done
# The controller manager makes the volumes, as their user: give it copies it may read.
install -d -m 700 -o $volume_user -g $volume_user "$run/controller-manager"
for file in ca.crt ca.key sa.key front-proxy-ca.crt; do install -m 600 -o $volume_user -g $volume_user "$pki/$file" "$run/controller-manager/$file"; done
install -m 600 -o $volume_user -g $volume_user "$run/controller-manager.kubeconfig" "$run/controller-manager/kubeconfig"
chmod o+x "$lab" "$run"

start namespaces sleep infinity # holds the namespaces when everything else was killed
start etcd etcd --name d --data-dir "$run/etcd" --unsafe-no-fsync --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster d=http://127.0.0.1:2380
wait_for etcd curl -sf http://127.0.0.1:2379/health
# shellcheck disable=SC2086
start apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --secure-port=6443 --advertise-address=$gateway \
    --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --cert-dir="$run" \
    --kubelet-client-certificate="$pki/apiserver-kubelet.crt" --kubelet-client-key="$pki/apiserver-kubelet.key" --kubelet-certificate-authority="$pki/ca.crt" \
    --kubelet-preferred-address-types=InternalIP,Hostname --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-signing-key-file="$pki/sa.key" --service-account-key-file="$pki/sa.pub" \
    --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
    --service-cluster-ip-range=$services --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true ${CODEHUB_KUBERNETES_APISERVER_ARGS:-}
wait_for "API server" curl -sf --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" $api/readyz
start controller-manager setpriv --reuid $volume_user --regid $volume_user --clear-groups "$programs/kube-controller-manager" --kubeconfig="$run/controller-manager/kubeconfig" \
    --authentication-kubeconfig="$run/controller-manager/kubeconfig" --authorization-kubeconfig="$run/controller-manager/kubeconfig" --bind-address=127.0.0.1 --port=0 \
    --cert-dir="$run/controller-manager" --leader-elect=false --use-service-account-credentials=true --service-account-private-key-file="$run/controller-manager/sa.key" \
    --root-ca-file="$run/controller-manager/ca.crt" --flex-volume-plugin-dir="$run/controller-manager/flex" --cluster-signing-cert-file="$run/controller-manager/ca.crt" \
    --cluster-signing-key-file="$run/controller-manager/ca.key" --requestheader-client-ca-file="$run/controller-manager/front-proxy-ca.crt" --enable-hostpath-provisioner \
    --node-monitor-grace-period="${CODEHUB_KUBERNETES_NODE_GRACE:-20s}" --pod-eviction-timeout=20s
start scheduler kube-scheduler --kubeconfig="$run/scheduler.kubeconfig" --authentication-kubeconfig="$run/scheduler.kubeconfig" --authorization-kubeconfig="$run/scheduler.kubeconfig" \
    --bind-address=127.0.0.1 --port=0 --cert-dir="$run" --leader-elect=false
wait_for "default service account" kubectl get serviceaccount default

if [ -z "${CODEHUB_KUBERNETES_CONTROL_ONLY:-}" ]; then
    cat > "$lab/cni/net.d/10-test.conflist" <<X
{"cniVersion": "1.0.0", "name": "test", "plugins": [
  {"type": "bridge", "bridge": "$bridge", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$lab/cni/state", "routes": [{"dst": "0.0.0.0/0"}],
            "ranges": [[{"subnet": "$pods", "rangeStart": "10.246.0.10", "gateway": "$gateway"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
X
    if [ -d /sys/fs/cgroup/memory ]; then
        for hierarchy in /sys/fs/cgroup/*/; do mkdir -p "$hierarchy$cgroup"; done
        for file in cpus mems; do cat "/sys/fs/cgroup/cpuset/cpuset.$file" > "/sys/fs/cgroup/cpuset/$cgroup/cpuset.$file"; done
        # All pods together would otherwise weigh as much as one process of this machine.
        echo 16384 > "/sys/fs/cgroup/cpu/$cgroup/cpu.shares"
    else
        mkdir -p "/sys/fs/cgroup/$cgroup"
        echo 1600 > "/sys/fs/cgroup/$cgroup/cpu.weight" 2>/dev/null || true
    fi
    cat > "$lab/containerd/config.toml" <<X
version = 2
root = '$lab/containerd/root'
state = '$lab/containerd/state'
oom_score = 0
disabled_plugins = ['io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.zfs', 'io.containerd.snapshotter.v1.devmapper', 'io.containerd.snapshotter.v1.aufs', 'io.containerd.internal.v1.tracing', 'io.containerd.tracing.processor.v1.otlp']
[grpc]
  address = '$containerd'
[plugins.'io.containerd.internal.v1.opt']
  path = '$lab/containerd/opt'
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = 'docker.io/codehub-test/pause:1'
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = '127.0.0.1'
  [plugins.'io.containerd.grpc.v1.cri'.cni]
    bin_dir = '$prefix/usr/lib/cni'
    conf_dir = '$lab/cni/net.d'
  [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]
      BinaryName = '$prefix/usr/sbin/runc'
      Root = '$lab/containerd/runc'
      SystemdCgroup = false
X
    start containerd containerd --config "$lab/containerd/config.toml"
    wait_for containerd ctr -a "$containerd" version
    for image in "$lab"/images/*.tar; do ctr -a "$containerd" -n k8s.io images import "$image" > /dev/null; done
    cat > "$run/kubelet.yaml" <<X
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $pki/kubelet-server.crt
tlsPrivateKeyFile: $pki/kubelet-server.key
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
failSwapOn: false
oomScoreAdj: 0
clusterDomain: cluster.local
clusterDNS: [$dns_service]
volumePluginDir: $lab/kubelet/volumeplugins
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 100Mi, nodefs.available: 0%, imagefs.available: 0%}
nodeStatusUpdateFrequency: 5s
syncFrequency: 2s
X
    start kubelet kubelet --config="$run/kubelet.yaml" --kubeconfig="$run/kubelet-client.kubeconfig" --root-dir="$lab/kubelet" --cert-dir="$lab/kubelet/pki" \
        --hostname-override=$node --node-ip=$gateway --container-runtime=remote --container-runtime-endpoint="unix://$containerd" --v=2
    wait_for "node Ready" sh -c "kubectl get node $node --no-headers | grep -q ' Ready '"
fi
kubectl apply -f "$here/storageclass.yaml" > /dev/null
touch "$run/ready"
step "up: $here/exec.sh kubectl get pods -A"
