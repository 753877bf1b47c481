package shard

import (
	"strings"
	"testing"
	"time"
)

func TestPromiseCheck(t *testing.T) {
	good := Promise{Shard: "s", From: "a", To: "b", Epoch: 3, For: 5 * time.Second, Seq: 7}
	row := Row{Name: "s", Epoch: 4, Primary: "a", PrimaryEpoch: 3}
	for _, c := range []struct {
		name  string
		edit  func(*Promise, *Row)
		known int64
		ok    bool
	}{
		{name: "as it should be", known: 4, ok: true},
		{name: "while its replicas follow", edit: func(_ *Promise, r *Row) { r.Plan = &Plan{Phase: Following} }, ok: true},
		{name: "for another node", edit: func(p *Promise, _ *Row) { p.To = "c" }},
		{name: "for another shard", edit: func(p *Promise, _ *Row) { p.Shard = "t" }},
		{name: "for no time", edit: func(p *Promise, _ *Row) { p.For = 0 }},
		{name: "for ever", edit: func(p *Promise, _ *Row) { p.For = MaxPromise + 1 }},
		{name: "of an earlier epoch", edit: func(p *Promise, _ *Row) { p.Epoch = 2 }},
		{name: "of one that was replaced", edit: func(_ *Promise, r *Row) { r.Primary = "c" }},
		{name: "of nobody", edit: func(p *Promise, r *Row) { p.From, r.Primary = "", "" }},
		{name: "while a plan is under way", edit: func(_ *Promise, r *Row) { r.Plan = &Plan{Phase: Detaching} }},
		{name: "after a command of a plan that was not seen", known: 5},
	} {
		p, r := good, row
		if c.edit != nil {
			c.edit(&p, &r)
		}
		if why, ok := p.Check(r, "b", c.known); ok != c.ok || ok != (why == "") {
			t.Errorf("%s: %v, %q", c.name, ok, why)
		}
	}
}

func TestPromiseSign(t *testing.T) {
	p := Promise{Shard: "s", From: "a", To: "b", Epoch: 3, For: time.Second, Seq: 7}
	mac := p.Sign("secret", "ask")
	if !p.Verify("secret", "ask", mac) {
		t.Error("its own authentication is not right")
	}
	for name, edit := range map[string]func(*Promise){
		"shard": func(p *Promise) { p.Shard = "t" }, "from": func(p *Promise) { p.From = "c" }, "to": func(p *Promise) { p.To = "c" },
		"epoch": func(p *Promise) { p.Epoch++ }, "for": func(p *Promise) { p.For++ }, "seq": func(p *Promise) { p.Seq++ },
		"a field's end": func(p *Promise) { p.From, p.To = "a\" \"b", "" },
	} {
		other := p
		if edit(&other); other.Verify("secret", "ask", mac) {
			t.Errorf("%s is not authenticated", name)
		}
	}
	if p.Verify("secret", "give", mac) || p.Verify("other", "ask", mac) || p.Verify("", "ask", p.Sign("", "ask")) || p.Verify("secret", "ask", strings.ToUpper(mac)) {
		t.Error("an answer, another secret, none or another text is taken for the question's authentication")
	}
}
