// Package mocks has gomock mocks of [mortise.Locker], of semaphores and of latches, for tests of code that takes
// locks.
//
// A lock that is granted takes one line; [mortise.NewLease] makes the lease:
//
//	locks := mocks.NewMockLocker(gomock.NewController(t))
//	locks.EXPECT().Lock(gomock.Any(), "orders:42").Return(mortise.NewLease(ctx, "orders:42", nil), nil)
//
// A refusal, and an unavailable store:
//
//	locks.EXPECT().TryLock(gomock.Any(), "orders:42").Return(nil, mortise.ErrNotAcquired)
//	locks.EXPECT().Lock(gomock.Any(), "orders:42").Return(nil, mortise.ErrUnavailable)
//
// Each of these matches a call without options. Options are comparable values, so
// an expectation can name them; a last gomock.Any() matches any, and none:
//
//	locks.EXPECT().Lock(gomock.Any(), "orders:42", mortise.WithWait(5*time.Second))
//	locks.EXPECT().Lock(gomock.Any(), "orders:42", gomock.Any())
//
// A lock that is lost during the work is a lease whose context ends with a cause
// that wraps [mortise.ErrLost]:
//
//	ctx, lose := context.WithCancelCause(t.Context())
//	lease := mortise.NewLease(ctx, "orders:42", nil)
//	lose(mortise.ErrLost)
//
// To see that Unlock was called, give NewLease a function.
//
// A read-write lock is two mocks of Locker: mortise.RWLocker{Read: read, Write: write}.
//
// A mock says what was called. Where a test is about what locks do (waiting,
// exclusion, loss), backend/memory is the better choice: real locks, no server.
package mocks

//go:generate -command mock go tool mockgen -typed -write_package_comment=false -package mocks
//go:generate mock -source ../locker.go -destination locker_gen.go
//go:generate mock -source counters.go -destination counters_gen.go
