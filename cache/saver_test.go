package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// memory is a Storage that tests can make slow and broken.
type memory struct {
	mu      sync.Mutex
	records map[string]protocol.Entry
	state   State
	log     []string
	took    time.Duration // of every call
	fail    string        // calls that begin so fail
	hang    chan struct{} // calls wait for it, whatever their contexts say; nil: they do not
	running int           // calls
}

func newMemory() *memory { return &memory{records: map[string]protocol.Entry{}} }

var errDisk = errors.New("the disk is broken")

func (m *memory) call(ctx context.Context, what string, do func()) error {
	m.mu.Lock()
	took, fail, hang := m.took, m.fail, m.hang
	if m.running++; m.running > 1 {
		what = "two at a time: " + what
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.running--
	}()
	if hang != nil {
		<-hang
	}
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, what)
	if fail != "" && strings.HasPrefix(what, fail) {
		return errDisk
	}
	do()
	return nil
}

func (m *memory) Load(ctx context.Context, each func(Record) error) (State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(m.records)) {
		if err := each(Record{key, m.records[key]}); err != nil {
			return State{}, err
		}
	}
	return m.state, nil
}

func (m *memory) Save(ctx context.Context, records []Record) error {
	records = slices.Clone(records)
	return m.call(ctx, fmt.Sprintf("save %d", len(records)), func() {
		for _, r := range records {
			if r.Entry.Term == 0 && r.Entry.Expire == 0 {
				delete(m.records, r.Key)
				continue
			}
			m.records[r.Key] = r.Entry
		}
	})
}

func (m *memory) Raise(ctx context.Context, to int64) error {
	return m.call(ctx, fmt.Sprintf("raise %d", to), func() { m.state.Ceiling = max(m.state.Ceiling, to) })
}

func (m *memory) SaveRemovals(ctx context.Context, all []protocol.Removal) error {
	return m.call(ctx, fmt.Sprintf("removals %d", len(all)), func() { m.state.Removals = all })
}

func (m *memory) SaveMembers(ctx context.Context, s protocol.MembersState) error {
	return m.call(ctx, fmt.Sprintf("members %d", len(s.Members)), func() { m.state.Members = s })
}

func (m *memory) set(took time.Duration, fail string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took, m.fail = took, fail
}

// hangs makes calls hang, and returns what ends that.
func (m *memory) hangs() (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	hang := make(chan struct{})
	m.hang = hang
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.hang = nil
		close(hang)
	}
}

func (m *memory) stored() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

func (m *memory) calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

func (m *memory) has(key string) (protocol.Entry, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.records[key]
	return e, ok
}

// saverBench is a saver at work, in a bubble. Its reports are written to told.
type saverBench struct {
	*saver
	memory *memory
	end    func()
	mu     sync.Mutex
	told   []string
}

func newSaverBench(t *testing.T) *saverBench {
	b := &saverBench{memory: newMemory()}
	cfg := Config{Storage: b.memory, Clock: bubbleClock{time.Now()}}.withDefaults()
	b.saver = newSaver(cfg, newTable(100_000, 1<<30, nil), &counters{})
	tell := func(what string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told = append(b.told, what)
	}
	b.raised = func(r protocol.Raised) { tell(fmt.Sprintf("raised %d %s", r.To, r.Err)) }
	b.durable = func(ticket uint64, err error) { tell(fmt.Sprintf("durable %d %v", ticket, err)) }
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.run(ctx) })
	b.end = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(b.end)
	return b
}

func (b *saverBench) put(key string, term int64) {
	b.table.Put(key, protocol.Entry{Term: term, Expire: 1, Used: 9})
	b.save(key)
}

func (b *saverBench) reports() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.told)
}

func (b *saverBench) check(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestSaverSavesWhatTheTableHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSaverBench(t)
		b.memory.set(time.Second, "")
		b.put("busy", 1)
		synctest.Wait()
		for term := range int64(50) {
			b.put("key", term+1) // written once, with the last term
		}
		b.put("gone", 1)
		b.table.Put("gone", protocol.Entry{})
		time.Sleep(time.Minute)
		b.check(t, "calls", b.memory.calls(), []string{"save 1", "save 2"})
		if e, ok := b.memory.has("key"); !ok || e.Term != 50 || e.Used != 0 {
			t.Errorf("stored %+v", e)
		}
		if _, ok := b.memory.has("gone"); ok {
			t.Error("what was evicted is stored")
		}
		b.end()
	})
}

func TestSaverFirstThingsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSaverBench(t)
		b.memory.set(time.Second, "")
		b.put("a", 1)
		synctest.Wait() // it is being saved
		for i := range 2500 {
			b.put(fmt.Sprint("key ", i), 1)
		}
		b.raiseCeiling(7)
		b.raiseCeiling(9)
		b.saveRemovals(removals(1))
		if ticket := b.saveRemovals(removals(1, 2)); ticket != 2 {
			t.Errorf("ticket %d", ticket)
		}
		b.saveMembers(protocol.MembersState{Members: make(protocol.Members, 3)})
		time.Sleep(4500 * time.Millisecond) // a, the ceiling, the members, the removals
		b.raiseCeiling(20)
		time.Sleep(time.Minute)
		b.check(t, "calls", b.memory.calls(), []string{
			"save 1", "raise 9", "members 3", "removals 2", "save 1000", "raise 20", "save 1000", "save 500",
		})
		b.check(t, "told", b.reports(), []string{"raised 9 ", "durable 3 <nil>", "raised 20 "})
		b.end()
	})
}

func TestSaverBrokenDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSaverBench(t)
		b.memory.set(0, "save")
		b.put("key", 1)
		b.put("other", 1)
		time.Sleep(10 * time.Second)
		if n := len(b.memory.calls()); n < 5 || n > 20 {
			t.Errorf("it tried %d times in 10 s", n)
		}
		b.raiseCeiling(5) // not held up by the copies
		synctest.Wait()
		b.check(t, "told", b.reports(), []string{"raised 5 "})
		b.put("key", 2)
		b.memory.set(0, "raise")
		time.Sleep(3 * time.Second)
		if e, _ := b.memory.has("key"); e.Term != 2 {
			t.Errorf("stored %+v", e)
		}
		if _, ok := b.memory.has("other"); !ok {
			t.Error("a failed save is forgotten")
		}
		b.raiseCeiling(6)
		b.memory.set(0, "removals")
		b.saveRemovals(removals(1))
		b.saveMembers(protocol.MembersState{})
		synctest.Wait()
		if told := b.reports(); !strings.Contains(told[len(told)-1], errDisk.Error()) {
			t.Errorf("told %q", told)
		}
		b.memory.set(0, "")
		time.Sleep(3 * time.Second)
		if told := b.reports(); told[len(told)-1] != "durable 2 <nil>" {
			t.Errorf("told %q", told)
		}
		if len(b.memory.stored().Removals) != 1 {
			t.Error("what could not be stored is forgotten")
		}
		b.memory.set(0, "members")
		b.saveMembers(protocol.MembersState{Members: make(protocol.Members, 5)})
		synctest.Wait()
		b.memory.set(0, "")
		time.Sleep(3 * time.Second)
		if len(b.memory.stored().Members.Members) != 5 {
			t.Error("a list that could not be stored is forgotten")
		}
		b.end()
	})
}

// A removal is forgotten only when what it removed is deleted.
func TestSaverForgetsRemovalsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSaverBench(t)
		b.put("key", 1)
		synctest.Wait()
		b.memory.set(time.Second, "save")
		b.table.Put("key", protocol.Entry{})
		if b.saveRemovals(removals(1)) == 0 {
			t.Error("nobody waits for a new removal")
		}
		b.save("key")
		if b.saveRemovals(removals()) != 0 {
			t.Error("somebody waits for an old one to be forgotten")
		}
		if b.saveRemovals(removals(2)) == 0 {
			t.Error("nobody waits for another")
		}
		time.Sleep(20 * time.Second)
		if got := b.memory.stored().Removals; len(got) != 2 {
			t.Errorf("stored %v, while the copy is there", got)
		}
		b.memory.set(time.Second, "")
		time.Sleep(20 * time.Second)
		if _, ok := b.memory.has("key"); ok || !slices.Equal(b.memory.stored().Removals, removals(2)) {
			t.Errorf("stored %v, copy %t", b.memory.stored().Removals, ok)
		}
		b.end()
	})
	synctest.Test(t, func(t *testing.T) { // a list that cannot be stored
		b := newSaverBench(t)
		b.saveRemovals(removals(1, 2))
		synctest.Wait()
		b.memory.set(0, "removals")
		b.saveRemovals(removals(2))
		time.Sleep(10 * time.Second)
		b.memory.set(0, "")
		time.Sleep(10 * time.Second)
		if got := b.memory.stored().Removals; !slices.Equal(got, removals(2)) {
			t.Errorf("stored %v", got)
		}
		b.end()
	})
}

func removals(terms ...int64) (out []protocol.Removal) {
	for _, term := range terms {
		out = append(out, protocol.Removal{Scope: protocol.OneKey, Name: "key", Term: term})
	}
	return out
}

func TestSaverLastSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSaverBench(t)
		b.memory.set(time.Second, "")
		b.put("first", 1)
		synctest.Wait()
		b.put("second", 1)
		b.raiseCeiling(3)
		b.end()
		for _, key := range []string{"first", "second"} {
			if _, ok := b.memory.has(key); !ok {
				t.Errorf("%s is not saved", key)
			}
		}
		if b.memory.stored().Ceiling != 3 {
			t.Error("the ceiling is not stored")
		}
	})
	synctest.Test(t, func(t *testing.T) { // a disk that hangs
		b := newSaverBench(t)
		b.memory.set(24*time.Hour, "")
		b.put("key", 1)
		synctest.Wait()
		began := time.Now()
		b.end()
		if took := time.Since(began); took > lastSaveWait+time.Second {
			t.Errorf("stopping took %v", took)
		}
	})
}

// A disk that hangs does not look at contexts: whoever waits for it is told, and nothing else is asked of it meanwhile.
func TestSaverHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSaverBench(t)
		const hangs = "the storage has not answered for 10s"
		end := b.memory.hangs()
		b.raiseCeiling(5)
		time.Sleep(storageWait + stopWait)
		synctest.Wait()
		b.check(t, "told", b.reports(), []string{"raised 5 storing the ceiling of terms: " + hangs})
		last := func(want string) {
			t.Helper()
			synctest.Wait()
			told := b.reports()
			b.check(t, "told at once", told[len(told)-1:], []string{want})
		}
		b.raiseCeiling(6)
		last("raised 6 storing the ceiling of terms: " + hangs)
		b.saveRemovals(removals(1))
		last("durable 1 storing removals: " + hangs)
		b.put("key", 1)
		end()
		time.Sleep(3 * time.Second)
		b.raiseCeiling(7)
		last("raised 7 ")
		b.check(t, "calls", b.memory.calls(), []string{"raise 5", "removals 1", "save 1", "raise 7"})

		end = b.memory.hangs()
		b.put("first", 1)
		synctest.Wait()
		b.put("second", 1)
		time.AfterFunc(lastSaveWait-time.Second, end)
		b.end() // waits for the call that is under way
		for _, key := range []string{"first", "second"} {
			if _, ok := b.memory.has(key); !ok {
				t.Errorf("%s is not saved", key)
			}
		}
	})
}

func TestSaverIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSaverBench(t)
		b.maxDirty = 10
		b.memory.set(24*time.Hour, "")
		for i := range 100 {
			b.put(fmt.Sprint(i), 1)
		}
		b.saver.mu.Lock()
		n := len(b.dirty)
		b.saver.mu.Unlock()
		if n > 10 {
			t.Errorf("%d keys wait", n)
		}
		if lost := b.stats.saveFailures.Load(); lost == 0 {
			t.Error("lost saves are not counted")
		}
		b.end()
	})
}

// What the load leaves out is deleted, or a removal would miss it, and it would be back with larger limits. Where there is too
// much of it to delete, no removal is forgotten.
func TestLoadLeavesNothingBehind(t *testing.T) {
	for _, maxDirty := range []int{100, 1} {
		disk := newMemory()
		for _, key := range []string{"a", "b", "c", "large", "a key"} {
			disk.records[key] = protocol.Entry{Term: 1, Expire: 1, Value: bytes.Repeat([]byte("x"), len(key))}
		}
		disk.state.Removals = removals(7)
		p, err := New(Config{
			Self: "tcp://127.0.0.1:1", Members: []protocol.Member{{URL: "tcp://127.0.0.1:1", API: "tcp://127.0.0.1:2"}},
			Storage: disk, MaxKeys: 2, MaxKey: 4, MaxValue: 4,
		})
		if err != nil {
			t.Fatal(err)
		}
		p.saver.maxDirty = maxDirty
		if _, err := p.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.saver.saveRemovals(removals(8))
		keys, forgotten := p.saver.takeDirty()
		if maxDirty == 1 && len(forgotten) > 0 {
			t.Errorf("%v may be forgotten, although copies are on the disk that nothing deletes", forgotten)
		}
		if maxDirty == 1 {
			continue
		}
		if !slices.Equal(forgotten, removals(7)) {
			t.Errorf("%v may be forgotten", forgotten)
		}
		if err := p.saver.saveCopies(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		for key := range disk.records {
			if !p.table.Get(key).Held() {
				t.Errorf("%q is on the disk, and not in memory", key)
			}
		}
		if len(disk.records) != 2 {
			t.Errorf("%d copies are on the disk", len(disk.records))
		}
	}
}
