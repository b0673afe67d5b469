package main

import (
	"slices"
	"sync"
)

// mailbox is the capacity of a viewer's channel. A full one makes the publisher
// wait: nobody drops here.
const mailbox = 1024

// channels is the hub that most programs have: a channel for each viewer, and a
// goroutine that writes what comes out of it.
type channels[T any] struct {
	mu    sync.RWMutex
	boxes []chan T
}

// enter adds a viewer, whose messages come out of box until leave is called.
func (c *channels[T]) enter() (box <-chan T, leave func()) {
	both := make(chan T, mailbox)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boxes = append(c.boxes, both)
	return both, func() {
		go func() { // ends when the box is closed; until then the publisher may wait for room in it
			for range both {
			}
		}()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.boxes = slices.DeleteFunc(c.boxes, func(b chan T) bool { return b == both })
		close(both)
	}
}

// join adds a viewer, whose messages go to write until leave is called. A
// viewer whose connection broke is fed on, so that it holds nobody up.
func (c *channels[T]) join(write func(T) error) (leave func()) {
	box, leave := c.enter()
	go func() { // ends when the viewer leaves
		var err error
		for m := range box {
			if err == nil {
				err = write(m)
			}
		}
	}()
	return leave
}

func (c *channels[T]) publish(m T) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, box := range c.boxes {
		box <- m
	}
}

func (c *channels[T]) viewers() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.boxes)
}
