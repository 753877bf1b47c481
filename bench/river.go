package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPost is the job of River's side: it makes the same request as the webhook
// that Understudy delivers to, in no order.
type riverPost struct {
	N    int    `json:"n"`
	At   int64  `json:"at"`
	Key  string `json:"key"`
	Text string `json:"text"`
}

func (riverPost) Kind() string { return "post" }

// riverPoster works such jobs as a user of River would who wants them quick.
type riverPoster struct {
	river.WorkerDefaults[riverPost]
	url    string
	client http.Client
}

func (p *riverPoster) Work(ctx context.Context, job *river.Job[riverPost]) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(job.EncodedArgs))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", strconv.FormatInt(job.ID, 10))
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the sink answers %s", resp.Status)
	}
	return nil
}

// riverRun works River's default queue until stop is closed.
func riverRun(ctx context.Context, o queueOptions, stop <-chan struct{}, started func()) (string, error) {
	pool, err := pgxpool.New(ctx, o.URL)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverPoster{url: o.Target, client: http.Client{
		Timeout:   15 * time.Second,
		Transport: &http.Transport{MaxIdleConns: o.Concurrency, MaxIdleConnsPerHost: o.Concurrency, DisableCompression: true},
	}})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		// The shortest pauses that it allows. Its completer records many jobs in
		// one statement by itself, after their workers have gone on.
		FetchCooldown: river.FetchCooldownMin, FetchPollInterval: river.FetchPollIntervalMin,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: o.Concurrency}},
		Workers: workers,
	})
	if err != nil {
		return "", err
	}
	if err := client.Start(ctx); err != nil {
		return "", err
	}
	started()
	<-stop
	return "", client.Stop(ctx)
}

// riverFill makes River's tables and puts jobs into them: per messages of each key,
// the keys in turn, as the other side's are enqueued.
func riverFill(ctx context.Context, b *bed, url string, keys, per int) {
	pool, err := pgxpool.New(ctx, url)
	b.check(err, "River")
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	b.check(err, "making River's tables")
	client, err := river.NewClient(driver, &river.Config{})
	b.check(err, "River")
	for n := 1; n <= per; n++ {
		var jobs []river.InsertManyParams
		for k := range keys {
			var args riverPost
			b.check(json.Unmarshal(message(keyName(k), n, 0), &args), "a message that cannot be read")
			jobs = append(jobs, river.InsertManyParams{Args: args})
		}
		_, err := client.InsertManyFast(ctx, jobs)
		b.check(err, "inserting River's jobs")
	}
	vacuumAndCheckpoint(ctx, b, url)
}

// vacuumAndCheckpoint leaves the server nothing to do for what was put in.
func vacuumAndCheckpoint(ctx context.Context, b *bed, url string) {
	conn, err := pgx.Connect(ctx, url)
	b.check(err, "connecting")
	defer conn.Close(ctx)
	for _, statement := range []string{"VACUUM (ANALYZE)", "CHECKPOINT"} {
		_, err := conn.Exec(ctx, statement)
		b.check(err, "%s", statement)
	}
}
