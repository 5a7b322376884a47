// Package mocks has gomock mocks of [mortise.Locker], of semaphores and of latches, for tests of code that takes
// locks.
//
// A grant takes one line; [mortise.NewLease] makes the lease:
//
//	locks := mocks.NewMockLocker(gomock.NewController(t))
//	locks.EXPECT().Lock(gomock.Any(), "orders:42").Return(mortise.NewLease(ctx, "orders:42", 0, nil), nil)
//
// A refusal, and an unavailable store:
//
//	locks.EXPECT().TryLock(gomock.Any(), "orders:42").Return(nil, mortise.ErrNotAcquired)
//	locks.EXPECT().Lock(gomock.Any(), "orders:42").Return(nil, mortise.ErrUnavailable)
//
// Each of these expectations matches a call without options. Options are comparable
// values, so an expectation can name them. A final gomock.Any() matches any options,
// and none:
//
//	locks.EXPECT().Lock(gomock.Any(), "orders:42", mortise.WithWait(5*time.Second))
//	locks.EXPECT().Lock(gomock.Any(), "orders:42", gomock.Any())
//
// A loss during the work is the end of the lease's context, with a cause that wraps
// [mortise.ErrLost]:
//
//	ctx, lose := context.WithCancelCause(t.Context())
//	lease := mortise.NewLease(ctx, "orders:42", 0, nil)
//	lose(mortise.ErrLost)
//
// To see that Unlock was called, give NewLease a function.
//
// A read-write lock is two mocks of Locker: mortise.RWLocker{Read: read, Write: write}.
//
// A mock checks calls. For tests of waiting, exclusion and loss, backend/memory is
// the better choice: real locks without a server.
package mocks

//go:generate -command mock go tool mockgen -typed -write_package_comment=false -package mocks
//go:generate mock -source ../locker.go -destination locker_gen.go
//go:generate mock -source counters.go -destination counters_gen.go
