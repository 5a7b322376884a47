package rueidis

//go:generate go run ../gen/cmd/mortise-gen commands -profile rueidis -sending sending_gen.go
//go:generate go run ../gen/cmd/mortise-gen adapter -profile rueidis
