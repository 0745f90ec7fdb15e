package faults

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Become()
	goleak.VerifyTestMain(m)
}

// echo is a server that sends back what it gets. heard is called with each piece.
func echo(t *testing.T, heard func([]byte)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for buf := make([]byte, 100); ; {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					heard(bytes.Clone(buf[:n]))
					if _, err := c.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// answered sends and waits for the echo, for a while.
func answered(t *testing.T, c net.Conn, text string, limit time.Duration) bool {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return received(c, text, limit)
}

func received(c net.Conn, text string, limit time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	got := make([]byte, len(text))
	_, err := io.ReadFull(c, got)
	return err == nil && string(got) == text
}

const (
	long  = 20 * time.Second      // for what must happen
	short = 50 * time.Millisecond // for what must not
)

// Each direction of a link is held back and slowed by itself, and goes on where it was.
func TestNetwork(t *testing.T) {
	heard := make(chan []byte, 100)
	address := echo(t, func(b []byte) { heard <- b })
	n := NewNetwork(func(net.Addr) (string, error) { return "a", nil })
	defer n.Close()
	through, err := n.Listen("b", address)
	if err != nil {
		t.Fatal(err)
	}
	n.Name("b", address)
	member, err := net.Dial("tcp", through)
	if err != nil {
		t.Fatal(err)
	}
	client, err := n.Dialer("c")(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if !answered(t, member, "1", long) || !answered(t, client, "2", long) {
		t.Fatal("whole links do not pass bytes on")
	}
	<-heard
	<-heard

	n.Set("a", "b", Rule{Cut: true})
	if answered(t, member, "3", short) || len(heard) > 0 {
		t.Error("a link that is cut passes bytes on")
	}
	if !answered(t, client, "4", long) {
		t.Error("another link is cut, too")
	}
	<-heard
	n.Set("a", "b", Rule{})
	if !received(member, "3", long) {
		t.Error("what was held back does not come")
	}
	<-heard

	n.Set("b", "a", Rule{Cut: true})
	if answered(t, member, "5", short) {
		t.Error("the direction back passes bytes on")
	}
	if got := string(<-heard); got != "5" { // waits
		t.Errorf("heard %q", got)
	}
	n.Set("b", "a", Rule{Delay: 100 * time.Millisecond, Chunk: 1})
	begin := time.Now()
	if !received(member, "5", long) || !answered(t, member, "678", long) || time.Since(begin) < 300*time.Millisecond {
		t.Errorf("four bytes, one each 100 ms, took %v", time.Since(begin))
	}
	n.Set("b", "a", Rule{})

	n.Set("b", "a", Rule{Cut: true})
	n.Break("b", "a")
	_ = member.SetReadDeadline(time.Now().Add(long))
	if _, err := member.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a broken connection: %v", err)
	}
	_ = member.Close()
	if !answered(t, client, "9", long) {
		t.Error("another connection was broken, too")
	}
}

// A client that is cut off cannot connect until its context ends.
func TestDialWhileCut(t *testing.T) {
	n := NewNetwork(func(net.Addr) (string, error) { return "a", nil })
	defer n.Close()
	n.Name("b", "nowhere:1")
	n.Set("c", "b", Rule{Cut: true})
	done := make(chan error)
	go func() {
		_, err := n.Dialer("c")(t.Context(), "nowhere:1")
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("connected, with %v", err)
	case <-time.After(short):
	}
	n.Close()
	if err := <-done; err == nil {
		t.Error("connected through a network that is closed")
	}
	if _, err := n.Dialer("c")(t.Context(), "elsewhere:1"); err == nil || !strings.Contains(err.Error(), "nobody has") {
		t.Errorf("an address of nobody: %v", err)
	}
}

// The kernel's table tells who has a socket.
func TestOwner(t *testing.T) {
	c, err := net.Dial("tcp", echo(t, func([]byte) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	inode, err := inodeOf(c.LocalAddr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	if !has(os.Getpid(), "socket:["+inode+"]") || has(1<<30, "socket:["+inode+"]") {
		t.Errorf("socket %s is not found to be this process's alone", inode)
	}
	if _, err := owner(nil, c.LocalAddr()); err == nil {
		t.Error("a socket of this process is found to be a member's")
	}
}
