package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// replica is one process of ours.
type replica struct {
	name          string
	command       *exec.Cmd
	listen, admin string // where it answers, as its log says

	ready chan struct{} // closed when it said so
	gone  chan struct{} // closed when the process has ended

	mu     sync.Mutex
	stderr bytes.Buffer
}

// launch starts a process. It is ready when await says so.
func launch(name string, argv ...string) (*replica, error) {
	r := &replica{name: name, ready: make(chan struct{}), gone: make(chan struct{})}
	r.command = exec.Command(argv[0], argv[1:]...)
	// Nothing of the developer's environment may change what is tested.
	r.command.Env = []string{"PATH=" + os.Getenv("PATH"), "GORACE=halt_on_error=0"}
	r.command.SysProcAttr = dieWithParent()
	out, err := r.command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := r.command.Start(); err != nil {
		return nil, err
	}
	go r.listenTo(out)
	return r, nil
}

// dieWithParent makes the kernel end a child when the test binary dies of a timeout or a panic.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// listenTo keeps the log and looks in it for the line that tells the addresses.
func (r *replica) listenTo(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		r.mu.Lock()
		r.stderr.Write(line)
		r.mu.Unlock()
		var said struct{ Msg, Listen, Admin string }
		if json.Unmarshal(line, &said) == nil && said.Msg == "listening" && r.listen == "" {
			r.listen, r.admin = said.Listen, said.Admin
			close(r.ready)
		}
		if err != nil {
			break
		}
	}
	r.command.Wait()
	close(r.gone)
}

func (r *replica) await() error {
	select {
	case <-r.ready:
		return nil
	case <-r.gone:
		return fmt.Errorf("replica %s ended before it listened (%v):\n%s", r.name, r.command.ProcessState, r.log())
	case <-time.After(20 * time.Second):
		return fmt.Errorf("replica %s did not say in 20 s where it listens:\n%s", r.name, r.log())
	}
}

func (r *replica) log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr.String()
}

func (r *replica) signal(s os.Signal) error { return r.command.Process.Signal(s) }

// exit waits for the end of the process and tells its code; -1: by a signal.
func (r *replica) exit() (int, error) {
	select {
	case <-r.gone:
		return r.command.ProcessState.ExitCode(), nil
	case <-time.After(20 * time.Second):
		return 0, fmt.Errorf("replica %s is still running", r.name)
	}
}

// close ends the process for good, and complains if it has raced meanwhile.
func (r *replica) close() error {
	r.signal(syscall.SIGCONT)
	r.signal(syscall.SIGKILL)
	<-r.gone
	if strings.Contains(r.log(), "DATA RACE") {
		return fmt.Errorf("replica %s: data race:\n%s", r.name, r.log())
	}
	return nil
}

// counter sums the samples of one metric. The name stands without its prefix weir_ and may select by labels:
// exchanges_total{action=serve,reason=fresh}. What was never counted is 0.
func (r *replica) counter(name string) (float64, error) { return r.metric("weir_" + name) }

// metric is the same by its whole name.
func (r *replica) metric(name string) (float64, error) {
	res, err := http.Get("http://" + r.admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return 0, errors.Join(err, fmt.Errorf("/metrics: %s\n%s", res.Status, text))
	}
	name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
	return sum(string(text), name, strings.Split(labels, ","))
}

var sample = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)`)

// sum reads the text format of Prometheus, as far as counters and gauges go.
func sum(text, name string, labels []string) (total float64, err error) {
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		has := func(label string) bool {
			key, value, _ := strings.Cut(label, "=")
			return label == "" || strings.Contains(","+m[2]+",", fmt.Sprintf(`,%s=%q,`, key, value))
		}
		if m[1] != name || slices.ContainsFunc(labels, func(l string) bool { return !has(l) }) {
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return 0, err
		}
		total += value
	}
	return total, nil
}

// tell speaks to the admin port.
func (r *replica) tell(path string, body any) (string, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	res, err := http.Post("http://"+r.admin+path, "application/json", bytes.NewReader(text))
	if err != nil {
		return "", err
	}
	return reading(res)
}

func reading(res *http.Response) (string, error) {
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %s", res.Request.URL, res.Status, text)
	}
	return string(text), err
}

var topLevelKey = regexp.MustCompile(`(?m)^[a-z_]+:`)

// overlay lays configuration over another by whole top-level keys.
func overlay(under, over string) string {
	order, blocks := []string{}, map[string]string{}
	for _, text := range []string{under, over} {
		starts := topLevelKey.FindAllStringIndex(text, -1)
		for i, at := range starts {
			end := len(text)
			if i+1 < len(starts) {
				end = starts[i+1][0]
			}
			key := text[at[0]:at[1]]
			if _, there := blocks[key]; !there {
				order = append(order, key)
			}
			blocks[key] = strings.TrimRight(text[at[0]:end], "\n") + "\n"
		}
	}
	var b strings.Builder
	for _, key := range order {
		b.WriteString(blocks[key])
	}
	return b.String()
}
