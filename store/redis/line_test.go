package redis

import (
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// line lies between replicas and their Redis, and may be slow.
type line struct {
	socket string
	delay  atomic.Int64 // of each piece that a replica sends
}

func startLine(t *testing.T, srv *server) *line {
	t.Helper()
	l := &line{socket: filepath.Join(srv.dir, "line.sock")}
	door, err := net.Listen("unix", l.socket)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() { _ = door.Close(); work.Wait() })
	work.Go(func() {
		for {
			here, err := door.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("unix", srv.socket)
			if err != nil {
				_ = here.Close()
				continue
			}
			work.Go(func() { l.carry(there, here) })
			work.Go(func() { _, _ = io.Copy(here, there); _ = here.Close() })
		}
	})
	return l
}

func (l *line) slow(d time.Duration) { l.delay.Store(int64(d)) }

func (l *line) carry(there, here net.Conn) {
	defer func() { _ = there.Close() }()
	piece := make([]byte, 64<<10)
	for {
		n, err := here.Read(piece)
		if err != nil {
			return
		}
		if d := time.Duration(l.delay.Load()); d > 0 {
			<-time.After(d)
		}
		if _, err := there.Write(piece[:n]); err != nil {
			return
		}
	}
}
