// A tunnel without root from the libraries that wireproxy is made of: wireguard-go, gVisor's TCP/IP behind its
// tun/netstack, and go-socks5. It reads as much of wireproxy's file as the comparisons need, and forgives nothing else.
//
//	netstack FILE
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/things-go/go-socks5"
	"github.com/things-go/go-socks5/bufferpool"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"
)

type section struct {
	name string
	keys map[string]string
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: netstack FILE")
	}
	sections := read(os.Args[1])
	var addresses, servers []netip.Addr
	mtu := 1420
	var uapi strings.Builder
	for _, section := range sections {
		switch section.name {
		case "interface":
			addresses, servers = list(section.keys["address"]), list(section.keys["dns"])
			if text, ok := section.keys["mtu"]; ok {
				mtu = must(strconv.Atoi(text))
			}
			fmt.Fprintf(&uapi, "private_key=%s\n", key(section.keys["privatekey"]))
		case "peer":
			fmt.Fprintf(&uapi, "public_key=%s\n", key(section.keys["publickey"]))
			if text, ok := section.keys["endpoint"]; ok {
				fmt.Fprintf(&uapi, "endpoint=%s\n", text)
			}
			prefixes := section.keys["allowedips"]
			if prefixes == "" {
				prefixes = "0.0.0.0/0, ::/0"
			}
			for _, prefix := range strings.Split(prefixes, ",") {
				fmt.Fprintf(&uapi, "allowed_ip=%s\n", strings.TrimSpace(prefix))
			}
		}
	}
	tun, inside, err := netstack.CreateNetTUN(addresses, servers, mtu)
	check(err)
	tunnel := device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, ""))
	check(tunnel.IpcSet(uapi.String()))
	check(tunnel.Up())

	for _, section := range sections {
		switch section.name {
		case "interface", "peer":
		case "socks5":
			go socks(inside, section.keys)
		case "tcpclienttunnel":
			listener := must(net.Listen("tcp", section.keys["bindaddress"]))
			go forward(listener, section.keys["target"], inside.DialContext)
		case "tcpservertunnel":
			listener := must(inside.ListenTCP(&net.TCPAddr{Port: must(strconv.Atoi(section.keys["listenport"]))}))
			go forward(listener, section.keys["target"], new(net.Dialer).DialContext)
		default:
			log.Fatalf("no [%s] here", section.name)
		}
	}
	select {}
}

func socks(inside *netstack.Net, keys map[string]string) {
	var method socks5.Authenticator = socks5.NoAuthAuthenticator{}
	if name := keys["username"]; name != "" {
		method = socks5.UserPassAuthenticator{Credentials: socks5.StaticCredentials{name: keys["password"]}}
	}
	server := socks5.NewServer(socks5.WithDial(inside.DialContext), socks5.WithResolver(resolver{inside}),
		socks5.WithAuthMethods([]socks5.Authenticator{method}), socks5.WithBufferPool(bufferpool.NewPool(256*1024)))
	check(server.ListenAndServe("tcp", keys["bindaddress"]))
}

type resolver struct{ inside *netstack.Net }

func (r resolver) Resolve(ctx context.Context, name string) (context.Context, net.IP, error) {
	found, err := r.inside.LookupContextHost(ctx, name)
	if err != nil {
		return ctx, nil, err
	}
	return ctx, net.ParseIP(found[0]), nil
}

func forward(listener net.Listener, target string, dial func(context.Context, string, string) (net.Conn, error)) {
	for {
		client := must(listener.Accept())
		go func() {
			server, err := dial(context.Background(), "tcp", target)
			if err != nil {
				log.Print(err)
				client.Close()
				return
			}
			go pass(client, server)
			go pass(server, client)
		}()
	}
}

func pass(from, to net.Conn) {
	io.Copy(to, from)
	to.Close()
	from.Close()
}

func read(path string) []section {
	file := must(os.Open(path))
	defer file.Close()
	var sections []section
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := strings.TrimSpace(strings.SplitN(lines.Text(), "#", 2)[0])
		name, value, isSetting := strings.Cut(line, "=")
		switch {
		case line == "":
		case strings.HasPrefix(line, "["):
			sections = append(sections, section{strings.ToLower(strings.Trim(line, "[]")), map[string]string{}})
		case isSetting && len(sections) > 0:
			sections[len(sections)-1].keys[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		default:
			log.Fatalf("what is `%s'?", line)
		}
	}
	return sections
}

func list(text string) []netip.Addr {
	var found []netip.Addr
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(strings.SplitN(part, "/", 2)[0]); part != "" {
			found = append(found, must(netip.ParseAddr(part)))
		}
	}
	return found
}

func key(text string) string { return hex.EncodeToString(must(base64.StdEncoding.DecodeString(text))) }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}
