package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// redis is a private redis-server, and a line to it for each replica.
type redis struct {
	dir     string
	command *exec.Cmd

	lines map[string]*line
	state condition // of lines that are still to come

	forgets bool // lines do not keep what they have carried
}

// newRedis starts a server in an empty folder.
func newRedis(dir string) (*redis, error) {
	r := &redis{dir: dir, lines: map[string]*line{}}
	return r, r.start()
}

// line is a replica's own, which stays when another process takes its name.
func (r *redis) line(replica string) (*line, error) {
	l := r.lines[replica]
	if l != nil {
		return l, nil
	}
	l, err := newLine(r.socket())
	if err == nil {
		l.set(r.state)
		l.mu.Lock()
		l.forgets = r.forgets
		l.mu.Unlock()
		r.lines[replica] = l
	}
	return l, err
}

// set changes the lines of some replicas, or of all that there are and will be.
func (r *redis) set(c condition, replicas []string) error {
	if len(replicas) == 0 {
		r.state = c
		replicas = slices.Collect(maps.Keys(r.lines))
	}
	for _, name := range replicas {
		l, err := r.line(name)
		if err != nil {
			return err
		}
		l.set(c)
	}
	return nil
}

func (r *redis) socket() string { return filepath.Join(r.dir, "redis.sock") }

// start keeps nothing from an earlier run: a Redis that comes back is empty.
func (r *redis) start() error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return errors.New("redis-server is missing; install it: apt-get install redis-server")
	}
	r.command = exec.Command(path, "--port", "0", "--unixsocket", r.socket(), "--dir", r.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", filepath.Join(r.dir, "redis.log"))
	r.command.SysProcAttr = dieWithParent()
	if err := r.command.Start(); err != nil {
		return err
	}
	return poll(20*time.Second, func() error { return r.say("PING") })
}

// say is one command to the server itself, past the line.
func (r *redis) say(command string) error {
	conn, err := net.Dial("unix", r.socket())
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(conn, "%s\r\n", command)
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(reply, "+") {
		err = fmt.Errorf("redis: %s: %s", command, reply)
	}
	return err
}

func (r *redis) kill() error {
	err := r.command.Process.Kill()
	r.command.Wait()
	return err
}

func (r *redis) close() {
	for _, l := range r.lines {
		l.close()
	}
	r.kill()
}

// condition is the state of a line.
type condition int

const (
	whole     condition = iota
	cut                 // connections are reset, new ones too
	paused              // bytes wait until it is healed
	blackhole           // bytes vanish; connections that lost some end when it is healed
)

// line carries bytes between replicas and a server, and can fail in the ways that networks do.
type line struct {
	to       string
	listener net.Listener
	running  sync.WaitGroup
	forgets  bool // what it has carried

	mu      sync.Mutex
	state   condition
	changed chan struct{} // closed at each change of state
	conns   map[net.Conn]bool
	lossy   map[net.Conn]bool // lost bytes in a black hole
	carried bytes.Buffer      // what replicas have sent to the server
	marked  int               // so much of it is not counted
}

func newLine(socket string) (*line, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &line{to: socket, listener: listener, changed: make(chan struct{}), conns: map[net.Conn]bool{}, lossy: map[net.Conn]bool{}}
	l.running.Add(1)
	go l.accept()
	return l, nil
}

func (l *line) address() string { return l.listener.Addr().String() }

func (l *line) set(c condition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = c
	close(l.changed)
	l.changed = make(chan struct{})
	for conn := range l.conns {
		if c == cut || c == whole && l.lossy[conn] {
			reset(conn)
		}
	}
}

func (l *line) is(c condition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == c
}

func (l *line) close() {
	l.listener.Close()
	l.set(cut)
	l.running.Wait()
}

// has tells whether the server was ever sent these bytes.
func (r *redis) has(text string) bool {
	for _, l := range r.lines {
		if l.has(text) {
			return true
		}
	}
	return false
}

// mark begins to count what is asked of the server.
func (r *redis) mark() {
	for _, l := range r.lines {
		l.mark()
	}
}

func (r *redis) asked() (n int) {
	for _, l := range r.lines {
		n += l.asked()
	}
	return n
}

func (l *line) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.carried.Bytes(), []byte(text))
}

func (l *line) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marked = l.carried.Len()
}

// command is one that looks something up, or changes it; not what only keeps a line.
var command = regexp.MustCompile(`(?i)\r\n(evalsha|eval|get|set|unlink|expire)\r\n`)

func (l *line) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(command.FindAll(l.carried.Bytes()[l.marked:], -1))
}

func reset(conn net.Conn) {
	if t, ok := conn.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	conn.Close()
}

func (l *line) accept() {
	defer l.running.Done()
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.running.Add(1)
		go l.join(client)
	}
}

// join connects a replica with the server, once the line lets it through.
func (l *line) join(client net.Conn) {
	defer l.running.Done()
	if !l.admit(client) {
		reset(client)
		return
	}
	defer l.dismiss(client)
	server, err := net.Dial("unix", l.to)
	if err != nil { // the server is dead: to a client that is a closed port
		return
	}
	l.running.Add(1)
	go func() {
		defer l.running.Done()
		l.carry(client, server, io.Discard)
		client.Close()
	}()
	l.carry(server, client, &l.carried)
	server.Close()
}

func (l *line) admit(client net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[client] = true
	return l.state != cut
}

func (l *line) dismiss(client net.Conn) {
	l.mu.Lock()
	delete(l.conns, client)
	delete(l.lossy, client)
	l.mu.Unlock()
	reset(client)
}

// carry moves bytes one way while the line is whole.
func (l *line) carry(to, from net.Conn, copied io.Writer) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && l.pass(to, from) {
			l.mu.Lock()
			if !l.forgets {
				copied.Write(buffer[:n])
			}
			l.mu.Unlock()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while the line is paused, and tells whether bytes get through.
func (l *line) pass(to, from net.Conn) bool {
	for {
		l.mu.Lock()
		state, changed := l.state, l.changed
		if state == blackhole {
			for _, end := range []net.Conn{to, from} {
				if l.conns[end] {
					l.lossy[end] = true
				}
			}
		}
		l.mu.Unlock()
		if state != paused {
			return state == whole
		}
		<-changed
	}
}
