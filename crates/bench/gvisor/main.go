// Echoes bytes on TCP connections that arrive through a TUN device, with gVisor's netstack: the other side of
// `make bench BENCH=shards`.
//
//	gvisor DEVICE ADDRESS PORT QUEUES
//
// The device is created with several queues, each read by a goroutine of its own, as netstack reads the
// packet sockets of a fanout group. netstack does not use the virtio headers of a TUN device, so packets cross
// it with complete checksums; netstack need not verify those of the packets that it receives. The program
// prints "ready" when it listens, and ends with its standard input.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	nic     = 1
	mtu     = 1500
	backlog = 4096
)

func openQueue(device string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	request, err := unix.NewIfreq(device)
	if err != nil {
		return 0, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return 0, err
	}
	return fd, unix.SetNonblock(fd, true)
}

func listen(device string, address netip.Addr, port uint16, queues int) (net.Listener, error) {
	var fds []int
	for range queues {
		fd, err := openQueue(device)
		if err != nil {
			return nil, fmt.Errorf("cannot open a queue of %s: %w", device, err)
		}
		fds = append(fds, fd)
	}
	link, err := fdbased.New(&fdbased.Options{
		FDs: fds, MTU: mtu, PacketDispatchMode: fdbased.Readv, RXChecksumOffload: true,
	})
	if err != nil {
		return nil, err
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	if err := s.CreateNIC(nic, link); err != nil {
		return nil, fmt.Errorf("CreateNIC: %v", err)
	}
	own := tcpip.AddrFrom4(address.As4())
	protocol := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: own.WithPrefix()}
	if err := s.AddProtocolAddress(nic, protocol, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("AddProtocolAddress: %v", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	// gonet.ListenTCP has a backlog of 10, too short for many clients.
	var queue waiter.Queue
	endpoint, failed := s.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &queue)
	if failed != nil {
		return nil, fmt.Errorf("NewEndpoint: %v", failed)
	}
	if err := endpoint.Bind(tcpip.FullAddress{NIC: nic, Addr: own, Port: port}); err != nil {
		return nil, fmt.Errorf("Bind: %v", err)
	}
	if err := endpoint.Listen(backlog); err != nil {
		return nil, fmt.Errorf("Listen: %v", err)
	}
	return gonet.NewTCPListener(s, &queue, endpoint), nil
}

func echo(connection net.Conn) {
	defer connection.Close()
	buffer := make([]byte, 4096)
	for {
		count, err := connection.Read(buffer)
		if err != nil {
			return
		}
		if _, err := connection.Write(buffer[:count]); err != nil {
			return
		}
	}
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("usage: gvisor DEVICE ADDRESS PORT QUEUES")
	}
	address, err := netip.ParseAddr(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	port, err := strconv.ParseUint(os.Args[3], 10, 16)
	if err != nil {
		log.Fatal(err)
	}
	queues, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := listen(os.Args[1], address, uint16(port), queues)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				log.Fatal(err)
			}
			go echo(connection)
		}
	}()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
