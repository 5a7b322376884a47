package gocronlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	gocronlock "github.com/mortise-go/mortise/gocron"
)

func ExampleElect() {
	client, err := mortise.New(memory.New()) // redisgo.New(...) or rueidis.New(...) to compete with other processes
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx, resign := context.WithCancel(context.Background())
	elector := gocronlock.Elect(ctx, client, "scheduler")
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		panic(err)
	}
	ran := make(chan struct{}, 100)
	_, err = scheduler.NewJob(gocron.DurationJob(50*time.Millisecond), gocron.NewTask(func() { ran <- struct{}{} }))
	if err != nil {
		panic(err)
	}
	scheduler.Start()
	<-ran
	fmt.Println("the leader ran the job")

	scheduler.Shutdown() // waits for jobs that run
	resign()
	<-elector.Done()
	// Output: the leader ran the job
}

func ExampleLocker() {
	client, err := mortise.New(memory.New())
	if err != nil {
		panic(err)
	}
	defer client.Close()
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.Locker(client, "billing:")))
	if err != nil {
		panic(err)
	}
	ran := make(chan struct{}, 100)
	_, err = scheduler.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() { ran <- struct{}{} }),
		gocron.WithName("invoices")) // the lock is billing:invoices
	if err != nil {
		panic(err)
	}
	scheduler.Start()
	<-ran
	fmt.Println("one process ran the job")
	scheduler.Shutdown()
	// Output: one process ran the job
}
