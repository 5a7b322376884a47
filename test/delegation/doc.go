// package delegation tests that a lock's owner travels from service to service: with services that are processes,
// on a real Redis, over HTTP and gRPC, by each client library. Processes are killed, Redis is restarted, keys
// are rotated while calls are on their way. Who is inside is judged by a witness outside Redis and outside the
// services.
package delegation
