package e2e

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// echo is a line to a server that sends everything back, and a client's end of it.
func echo(t *testing.T) (*line, net.Conn) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "echo")
	server, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(conn, conn); conn.Close() }()
		}
	}()
	l, err := newLine(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l, dial(t, l)
}

func dial(t *testing.T, l *line) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// heard tells whether the text comes back.
func heard(t *testing.T, conn net.Conn, text string, patience time.Duration) error {
	t.Helper()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, text)
	back := make([]byte, len(text))
	_, err := io.ReadFull(conn, back)
	if err == nil && string(back) != text {
		t.Fatalf("%q came back as %q", text, back)
	}
	return err
}

func TestLineIsWholeAndCut(t *testing.T) {
	l, conn := echo(t)
	if err := heard(t, conn, "one", 5*time.Second); err != nil || !l.has("one") || l.has("two") {
		t.Fatal("a whole line does not carry", err)
	}
	l.set(cut)
	if heard(t, conn, "two", 5*time.Second) == nil {
		t.Error("a cut line carries")
	}
	if fresh, err := net.Dial("tcp", l.address()); err == nil { // the reset may come as early as that
		defer fresh.Close()
		if heard(t, fresh, "two", 5*time.Second) == nil {
			t.Error("a cut line takes new connections")
		}
	}
	l.set(whole)
	if err := heard(t, dial(t, l), "three", 5*time.Second); err != nil {
		t.Error("a healed line does not carry", err)
	}
}

func TestLineIsPaused(t *testing.T) {
	l, conn := echo(t)
	l.set(paused)
	if heard(t, conn, "one", 50*time.Millisecond) == nil {
		t.Error("a paused line carries")
	}
	l.set(whole)
	if err := heard(t, conn, "", 0); err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	back := make([]byte, 3)
	if _, err := io.ReadFull(conn, back); err != nil || string(back) != "one" {
		t.Errorf("what waited came back as %q (%v)", back, err)
	}
}

func TestLineIsABlackHole(t *testing.T) {
	l, conn := echo(t)
	l.set(blackhole)
	if heard(t, conn, "lost", 50*time.Millisecond) == nil || l.has("lost") {
		t.Error("a black hole carries")
	}
	l.set(whole)
	if heard(t, conn, "after", 5*time.Second) == nil {
		t.Error("a connection that has lost bytes lives on")
	}
	if err := heard(t, dial(t, l), "new", 5*time.Second); err != nil {
		t.Error("a healed line does not carry", err)
	}
}
