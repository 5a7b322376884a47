// Package shopv1 is the shop's gRPC service, generated from shop.proto by protoc-gen-go 1.36.11 and
// protoc-gen-go-grpc 1.6.0.
package shopv1

//go:generate protoc -I .. --go_out=paths=source_relative:.. --go-grpc_out=paths=source_relative:.. shopv1/shop.proto
