#!/bin/sh
# Runs a program in two network namespaces that are connected by a veth pair.
#
#     namespaces.sh perftest PROGRAM OPTIONS…     a server in the second namespace, a client in the first
#     namespaces.sh mpi OPTIONS… COMMAND…         one rank in each namespace (OpenMPI)
#     namespaces.sh mckey -m GROUP OPTIONS…       a receiver in each namespace, and a sender in the first
#
# Needs the right to create user namespaces; the namespaces disappear with this shell and its children.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" != --inside ]; then
    exec unshare --user --map-root-user --net --uts "$0" --inside "$@"
fi
shift
what=$1
shift

ip link set lo up
hostname here
unshare --net --uts sh -c 'hostname there && exec sleep 600' &
there=$!
trap 'kill $there 2>/dev/null' EXIT
until [ "$(readlink /proc/$there/ns/net)" != "$(readlink /proc/self/ns/net)" ] &&
    [ "$(cat /proc/$there/comm)" = sleep ]; do
    kill -0 $there
done
over_there() { nsenter --target $there --net --uts "$@"; }
ip link add veth0 type veth peer name veth1 netns $there
ip address add 198.51.100.1/24 dev veth0
ip link set veth0 up
over_there ip link set lo up
over_there ip address add 198.51.100.2/24 dev veth1
over_there ip link set veth1 up

case $what in
perftest)
    over_there "$@" -p 18515 &
    server=$!
    until over_there cat /proc/net/tcp /proc/net/tcp6 | grep -q "$(printf ':%04X 0*:0000 0A' 18515)"; do
        kill -0 $server
    done
    "$@" -p 18515 198.51.100.2
    wait $server
    ;;
mpi)
    # The agent that mpirun uses instead of ssh: `agent HOST COMMAND…`.
    agent=$(mktemp)
    printf '#!/bin/sh\nshift\nexec nsenter --target %s --net --uts sh -c "$*"\n' $there > "$agent"
    chmod +x "$agent"
    trap 'kill $there 2>/dev/null; rm -f "$agent"' EXIT
    # The user is root in its own user namespace.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun -np 2 --host 198.51.100.1:1,198.51.100.2:1 --mca plm_rsh_agent "$agent" --mca oob_tcp_if_include 198.51.100.0/24 \
        -x LD_LIBRARY_PATH -x LD_PRELOAD -x KIBAN_TRANSPORT "$@"
    ;;
mckey)
    near=198.51.100.1 far=198.51.100.2 group=':12B7'
    case $2 in
    *:*)
        near=fd00:77::1 far=fd00:77::2
        ip address add $near/64 dev veth0 nodad
        over_there ip address add $far/64 dev veth1 nodad
        sockets=udp6
        ;;
    *) sockets=udp ;;
    esac
    over_there mckey -b $far "$@" &
    there_receives=$!
    mckey -b $near "$@" &
    here_receives=$!
    # Each namespace has a socket at port 4791 (12B7) of the receiver's address, and one of the group, once it has joined.
    for where in '' over_there; do
        until [ "$($where cat /proc/net/$sockets | grep -c $group)" -ge 2 ]; do
            kill -0 $there_receives
            kill -0 $here_receives
        done
    done
    mckey -s -b $near "$@"
    wait $there_receives
    wait $here_receives
    echo '3 members are done'
    ;;
*)
    echo "namespaces.sh: unknown mode '$what': use perftest, mpi or mckey" >&2
    exit 2
    ;;
esac
