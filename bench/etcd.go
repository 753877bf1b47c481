package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// etcdRole is an etcd server with its default settings.
const etcdRole = "etcd-server"

type etcdOptions struct {
	Client, Peer int // ports
	Dir          string
}

// startEtcd starts one etcd server in a process of its own, and returns its URL and process id.
func startEtcd(b *bed) (address string, pid int) {
	o := etcdOptions{Client: realserver.FreePort(b), Peer: realserver.FreePort(b), Dir: b.TempDir()}
	return fmt.Sprintf("etcd://127.0.0.1:%d", o.Client), start(b, etcdRole, o).pid()
}

// runEtcd is an etcd server until its input ends.
func runEtcd(c *child, o etcdOptions) error {
	at := func(port int) []url.URL {
		return []url.URL{{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}}
	}
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = o.Dir, "panic"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = at(o.Client), at(o.Client)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = at(o.Peer), at(o.Peer)
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	<-e.Server.ReadyNotify()
	c.say(saidReady)
	closed := make(chan struct{})
	go func() { c.untilClosed(); close(closed) }()
	select {
	case err := <-e.Err():
		return err
	case <-closed:
		return nil
	}
}

// etcdParty contends with etcd's own election recipe.
type etcdParty struct {
	name    string
	client  *clientv3.Client
	session *concurrency.Session
}

func dialEtcd(address string, more ...grpc.DialOption) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{strings.Replace(address, "etcd://", "http://", 1)},
		DialTimeout: 10 * time.Second, Logger: zap.NewNop(), DialOptions: more,
	})
}

func newEtcdParty(w *worker, name string) (*etcdParty, error) {
	client, err := dialEtcd(w.opt.URL, grpc.WithStreamInterceptor(beats(w)))
	if err != nil {
		return nil, err
	}
	// The lease counts from when it was granted, too.
	accepted := w.beat()
	// etcd counts in whole seconds.
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(w.opt.Timing.Timeout/time.Second)))
	if err != nil {
		return nil, err
	}
	accepted()
	return &etcdParty{name: name, client: client, session: session}, nil
}

func (p *etcdParty) campaign(ctx context.Context, role string, work func(context.Context)) error {
	e := concurrency.NewElection(p.session, "bench/"+role)
	if err := e.Campaign(ctx, p.name); err != nil {
		return err
	}
	work(ctx)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return e.Resign(clean)
}

func (p *etcdParty) close() {
	_ = p.session.Close()
	_ = p.client.Close()
}

// beats says each renewal of a lease that the client sends by itself.
func beats(w *worker) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil || method != pb.Lease_LeaseKeepAlive_FullMethodName {
			return s, err
		}
		return &beating{ClientStream: s, w: w, sent: make(chan func(), 16)}, nil
	}
}

// beating is a stream of renewals. Answers come in the order of the requests.
type beating struct {
	grpc.ClientStream
	w    *worker
	sent chan func()
}

func (s *beating) SendMsg(m any) error {
	accepted := s.w.beat()
	select {
	case s.sent <- accepted:
	default: // nobody answers
	}
	return s.ClientStream.SendMsg(m)
}

func (s *beating) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		select {
		case accepted := <-s.sent:
			accepted()
		default:
		}
	}
	return err
}
