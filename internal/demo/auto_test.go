package demo

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowAct has an outcome some time after each offer was taken, and is settled some time later.
type slowAct struct {
	act
	d     *demo
	busy  atomic.Bool
	taken []string
}

func (s *slowAct) part() string                 { return "role" }
func (s *slowAct) settled(context.Context) bool { return !s.busy.Load() }

func (s *slowAct) offers() []offer {
	var out []offer
	for _, id := range []string{"role-kill", freezeID, "role-resign"} {
		out = append(out, offer{ID: id, Title: id, do: func(context.Context) error {
			if !s.busy.CompareAndSwap(false, true) {
				return errors.New("the one before has not come to its end")
			}
			s.taken = append(s.taken, id)
			go func() {
				time.Sleep(20 * time.Second)
				if !s.d.held.Load() {
					s.d.voice.printf("a process can come back before the outcome of %s", id)
					return
				}
				s.d.announce(outcome{part: "role", what: id, broken: id == "role-resign"})
				time.Sleep(time.Second)
				s.busy.Store(s.d.held.Load())
			}()
			return nil
		}})
	}
	return out
}

// Auto takes offer after offer, waits for each outcome and for all to be as before, and fails if one did not keep its promise.
func TestAutoTakesOffersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &demo{voice: newPrinter(t.Output()), record: newRecord(), fleet: &fleet{}}
		s := &slowAct{d: d}
		d.acts = []act{s}
		err := d.runAuto(t.Context())
		if !errors.Is(err, errBroken) || !slices.Equal(s.taken, []string{"role-kill", "role-resign"}) || s.busy.Load() {
			t.Errorf("%v, %q", err, s.taken)
		}
		if all := d.outcomes(s); len(all) != 2 || !all[0].Kept || all[1].Kept {
			t.Errorf("%+v", all)
		}
	})
}
