module github.com/mortise-go/mortise/backend/valkey

go 1.26

require (
	github.com/mortise-go/mortise v0.0.0
	github.com/valkey-io/valkey-go v1.0.79
)

require golang.org/x/sys v0.47.0 // indirect

replace github.com/mortise-go/mortise => ../..
