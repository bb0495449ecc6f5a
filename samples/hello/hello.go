// SPDX-License-Identifier: GPL-2.0

// A text to a server and back, over SDP:
//
//	go run hello.go serve 192.0.2.1 7000        answers one client
//	go run hello.go ask 192.0.2.1 7000 TEXT     prints what the server answers
//
// Package net opens no sockets of other families. It takes those that it is given: a socket of the
// family 27 has addresses of AF_INET, so net makes of it what it makes of TCP's, and its goroutines
// wait in the runtime's poller.
package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
)

const afInetSdp = 27

// open makes a socket of SDP and has begin bind or connect it.
func open(begin func(fd int) error) (*os.File, error) {
	fd, err := syscall.Socket(afInetSdp, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket (is the module ib_sdp installed?): %w", err)
	}
	if err := begin(fd); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "sdp"), nil
}

func listen(address syscall.Sockaddr) (net.Listener, error) {
	file, err := open(func(fd int) error {
		if err := syscall.Bind(fd, address); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		return os.NewSyscallError("listen", syscall.Listen(fd, 1))
	})
	if err != nil {
		return nil, err
	}
	// The listener has a descriptor of its own.
	defer file.Close()
	return net.FileListener(file)
}

func dial(address syscall.Sockaddr) (net.Conn, error) {
	file, err := open(func(fd int) error {
		return os.NewSyscallError("connect", syscall.Connect(fd, address))
	})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FileConn(file)
}

// reply sends a text and ends this half of the stream.
func reply(conn net.Conn, text []byte) error {
	if _, err := conn.Write(text); err != nil {
		return err
	}
	return conn.(*net.TCPConn).CloseWrite()
}

func serve(address syscall.Sockaddr) error {
	listener, err := listen(address)
	if err != nil {
		return err
	}
	defer listener.Close()
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	return reply(conn, text)
}

func ask(address syscall.Sockaddr, text string) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := reply(conn, []byte(text)); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	fmt.Println(string(answer))
	return err
}

func run(arguments []string) error {
	usage := fmt.Errorf("usage: hello serve ADDRESS PORT | hello ask ADDRESS PORT TEXT")
	if len(arguments) < 3 {
		return usage
	}
	ip, err := netip.ParseAddr(arguments[1])
	if err != nil || !ip.Is4() {
		return usage
	}
	port, err := strconv.ParseUint(arguments[2], 10, 16)
	if err != nil {
		return usage
	}
	// Addresses are those of AF_INET.
	address := &syscall.SockaddrInet4{Port: int(port), Addr: ip.As4()}
	switch {
	case arguments[0] == "serve":
		return serve(address)
	case arguments[0] == "ask" && len(arguments) > 3:
		return ask(address, arguments[3])
	}
	return usage
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}
