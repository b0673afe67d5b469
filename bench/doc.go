// Command bench measures maestro beside its peers: how much one published
// message costs per viewer, how late it arrives, what an idle viewer weighs,
// what attaching, starting and the journal take, and what viewers that stop
// reading do to the others. The measurement "page" is the page in a browser,
// beside a naive one; it needs Node and Chromium. The measurement "growth" is
// costs that once grew with something that they must not grow with, beside what
// they were then.
//
// It promises a fair comparison. Servers run as processes of their own, one at
// a time, on the loopback interface; every repetition runs each of them once in
// turn and ratios are formed inside a repetition. The viewers are one thread on
// raw epoll, because a goroutine for each would cost more than the server, and
// they check the number of every message: a server that drops, repeats or
// reorders one has its result voided, which the report says and which makes the
// run fail. Processor time comes from the kernel, the same way for all.
//
// It does not promise absolute numbers: those belong to the machine. It needs
// Linux.
package main
