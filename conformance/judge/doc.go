// Package judge is what the programs have in common that judge maestro from
// outside: a command line, and the processes that they start. It imports nothing
// but the standard library, so that they share no mistake with what they judge.
package judge
