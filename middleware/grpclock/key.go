package grpclock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/mortise-go/mortise/middleware"
)

// Methods maps each locked method, by its full name, "/shop.v1.Orders/Ship", to the key of its
// lock. Other methods pass without a lock.
//
// A name without a service would be a lock never taken. So each name is looked up in
// protoregistry.GlobalFiles, where the generated code of a service registers its methods.
// [ServerOptions] and the interceptors panic if a method is missing there, or has a request that does
// not fit its key; an interceptor also if a method is of the sort, unary or stream, that it never sees.
type Methods map[string]Key

// Key makes the name of a call's lock: [Fields], [Metadata], [Func] or [ContextFunc].
type Key struct {
	// message says that the key needs a stream's first message.
	message bool
	check   func(protoreflect.MessageDescriptor) error
	// name also returns the context, because Metadata may change it.
	name func(ctx context.Context, req any) (string, context.Context, error)
}

// ErrNoLock is for functions of [Func] and [ContextFunc] to return: this call needs
// no lock.
var ErrNoLock = errors.New("grpclock: no lock is needed")

// Fields makes names of fields of the request; of a stream's first message:
// Fields("orders:{order.id}"). A path goes through messages to a string, bytes (put in as hex), an
// integer or an enum (its number). A missing or empty field is answered with InvalidArgument; zero
// counts as missing where the field cannot distinguish the two (no optional).
//
// The name is made of a string's TEXT. A handler that parses a string may take several texts for
// the same value: strconv.Atoi reads 42, 042 and +42 as one number, but the three texts are three
// locks. Declare how to read such a field:
//
//	grpclock.Fields("accounts:{id:int}") // a decimal integer of 64 bits; {id:uuid}: a UUID of 36 characters
//
// The handler then finds the canonical text in its request, and other texts are answered with
// InvalidArgument. For other values there is [Canonical]. Integer fields of the .proto have one
// text.
//
// In values, the characters % : / { } | and spaces and control characters are percent-encoded, so
// different texts make different names. A value has at most 255 bytes. httplock's RouteKey makes
// the same names.
//
// Fields panics if the template is malformed, has no placeholder, or has no text of the program's
// own with a final : or / before the first placeholder.
func Fields(tmpl string, opts ...KeyOption) Key {
	t := parse("Fields", tmpl, opts)
	paths := make(map[string][]string)
	for _, name := range t.Names() {
		paths[name] = strings.Split(name, ".")
	}
	return Key{
		message: true,
		check: func(d protoreflect.MessageDescriptor) error {
			for name, path := range paths {
				last, err := checkPath(d, path)
				if err == nil && t.IsCanonical(name) && last.Kind() != protoreflect.StringKind {
					err = fmt.Errorf("%s is a %s; Canonical is for strings, other fields have one text", last.FullName(), last.Kind())
				}
				if err != nil {
					return fmt.Errorf("{%s}: %w", name, err)
				}
			}
			return nil
		},
		name: func(ctx context.Context, req any) (string, context.Context, error) {
			m, ok := req.(proto.Message)
			if !ok {
				return "", ctx, fmt.Errorf("%w: the request is a %T, not a proto.Message", errMisused, req)
			}
			key, err := t.Expand(func(name string) (string, error) {
				v, err := field(m.ProtoReflect(), paths[name])
				if err == nil && v == "" {
					err = &middleware.ValueError{Name: name, Why: "is missing or empty"}
				}
				if err != nil {
					return "", err
				}
				c, err := t.Canonical(name, name, v)
				if err == nil && c != v {
					setField(m.ProtoReflect(), paths[name], c)
				}
				return c, err
			})
			return key, ctx, err
		},
	}
}

// KeyOption changes what [Fields] or [Metadata] makes of values: see [Canonical].
type KeyOption struct {
	placeholder string
	canonical   func(string) (string, error)
}

// Canonical makes f compute the canonical text of a placeholder's values, where {id:int} and {id:uuid} in the
// template do not fit. Lock and handler share the canonical text: the text is part of the lock's name,
// and replaces the value in the request message, or in the metadata. The placeholder of [Fields]
// belongs to a string field.
//
// f gets 1 to 255 bytes. Texts with the same meaning to the handler must become the same, so f
// reads as the handler does, or refuses: an error, or an empty text, is answered with
// InvalidArgument, and the client does not see the error. f must return its own results unchanged.
// f is called concurrently.
func Canonical(placeholder string, f func(value string) (string, error)) KeyOption {
	return KeyOption{placeholder, f}
}

// Metadata makes names of the call's metadata: Metadata("payments:{idempotency-key}"). A missing,
// empty or duplicate key is answered with InvalidArgument. Values are encoded and bounded as for
// [Fields]. A stream is locked before its first message.
//
// All clients share the names: a client that guesses the idempotency key of another can keep the
// other out. Use [ContextFunc] with the authenticated caller to keep callers apart.
//
// As with Fields, the name is made of the value's text. For a value that the handler parses,
// declare it in the template, or by [Canonical]; the handler then finds the canonical text in the incoming metadata.
//
// Metadata panics as Fields does.
func Metadata(tmpl string, opts ...KeyOption) Key {
	t := parse("Metadata", tmpl, opts)
	return Key{name: func(ctx context.Context, _ any) (string, context.Context, error) {
		md, _ := metadata.FromIncomingContext(ctx) // a copy
		changed := false
		key, err := t.Expand(func(name string) (string, error) {
			values, label := md.Get(name), "metadata "+name
			if len(values) > 1 {
				return "", &middleware.ValueError{Name: label, Why: "is there more than once"}
			}
			if len(values) == 0 || values[0] == "" {
				return "", &middleware.ValueError{Name: label, Why: "is missing or empty"}
			}
			c, err := t.Canonical(name, label, values[0])
			if err == nil && c != values[0] {
				md.Set(name, c)
				changed = true
			}
			return c, err
		})
		if changed {
			ctx = metadata.NewIncomingContext(ctx, md)
		}
		return key, ctx, err
	}}
}

// Func is a custom key; req is the request, of a stream its first message. An error is answered
// with InvalidArgument, and so is an empty name: an empty name would be one lock for all.
// [ErrNoLock] lets the call pass without a lock.
//
// Put a prefix of the program before the client's text: a client with free choice of names can
// block any lock. And make a single name of all texts with the same meaning to the handler.
func Func(name func(ctx context.Context, req any) (string, error)) Key {
	if name == nil {
		panic("grpclock: Func: the function must not be nil")
	}
	return Key{message: true, name: func(ctx context.Context, req any) (string, context.Context, error) {
		key, err := name(ctx, req)
		return key, ctx, err
	}}
}

// ContextFunc is [Func] of the context alone, for values put there by earlier interceptors. A
// stream is locked before its first message.
func ContextFunc(name func(ctx context.Context) (string, error)) Key {
	if name == nil {
		panic("grpclock: ContextFunc: the function must not be nil")
	}
	return Key{name: func(ctx context.Context, _ any) (string, context.Context, error) {
		key, err := name(ctx)
		return key, ctx, err
	}}
}

var (
	errEmptyKey = errors.New("grpclock: the key is empty: all such calls would share one lock")
	errMisused  = errors.New("grpclock: misused")
)

func parse(of, tmpl string, opts []KeyOption) middleware.Template {
	t, err := middleware.ParseTemplate(tmpl)
	for _, o := range opts {
		if err == nil {
			err = t.SetCanonical(o.placeholder, o.canonical)
		}
	}
	if err != nil {
		panic("grpclock: " + of + ": " + err.Error())
	}
	return t
}

// checkPath returns the field at the path's end.
func checkPath(d protoreflect.MessageDescriptor, path []string) (fd protoreflect.FieldDescriptor, err error) {
	for i, name := range path {
		fd = d.Fields().ByName(protoreflect.Name(name))
		last := i == len(path)-1
		switch {
		case fd == nil:
			return nil, fmt.Errorf("%s has no field %q", d.FullName(), name)
		case fd.Cardinality() == protoreflect.Repeated:
			return nil, fmt.Errorf("%s is repeated; use Func to choose", fd.FullName())
		case last && !keyed(fd.Kind()):
			return nil, fmt.Errorf("%s is a %s; a key is made of strings, bytes, integers and enums", fd.FullName(), fd.Kind())
		case !last && fd.Message() == nil:
			return nil, fmt.Errorf("%s is a %s and has no fields", fd.FullName(), fd.Kind())
		}
		d = fd.Message()
	}
	return fd, nil
}

func keyed(k protoreflect.Kind) bool {
	switch k {
	case protoreflect.BoolKind, protoreflect.FloatKind, protoreflect.DoubleKind,
		protoreflect.MessageKind, protoreflect.GroupKind:
		return false
	}
	return true
}

// field returns the value at the end of a path as a text; empty if the field is not set.
func field(m protoreflect.Message, path []string) (string, error) {
	if _, err := checkPath(m.Descriptor(), path); err != nil {
		return "", fmt.Errorf("%w: %w", errMisused, err)
	}
	for i, name := range path {
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if !m.Has(fd) {
			return "", nil
		}
		v := m.Get(fd)
		if i < len(path)-1 {
			m = v.Message()
			continue
		}
		switch x := v.Interface().(type) {
		case string:
			return x, nil
		case []byte:
			return hex.EncodeToString(x), nil
		case int32:
			return strconv.FormatInt(int64(x), 10), nil
		case int64:
			return strconv.FormatInt(x, 10), nil
		case uint32:
			return strconv.FormatUint(uint64(x), 10), nil
		case uint64:
			return strconv.FormatUint(x, 10), nil
		case protoreflect.EnumNumber:
			return strconv.FormatInt(int64(x), 10), nil
		}
	}
	return "", fmt.Errorf("%w: a field of a kind that makes no key", errMisused)
}

// setField replaces the string at the end of a path. The message has all fields of the path.
func setField(m protoreflect.Message, path []string, v string) {
	for _, name := range path[:len(path)-1] {
		m = m.Mutable(m.Descriptor().Fields().ByName(protoreflect.Name(name))).Message()
	}
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(path[len(path)-1])), protoreflect.ValueOfString(v))
}

// rule is a method's key, and the type of its request.
type rule struct {
	Key
	request protoreflect.MessageType
}

// sees says which methods reach an interceptor, or the two of ServerOptions.
type sees int

const (
	unary sees = 1 << iota
	streams
)

// rules looks the methods up and checks their keys. A method that is not seen would never be locked.
func (ms Methods) rules(seen sees) (map[string]rule, error) {
	if len(ms) == 0 {
		return nil, errors.New("no methods are given, so none would be locked")
	}
	all := make(map[string]rule, len(ms))
	for full, key := range ms {
		d, err := lookup(full)
		if err != nil {
			return nil, err
		}
		switch stream := d.IsStreamingClient() || d.IsStreamingServer(); {
		case key.name == nil:
			return nil, fmt.Errorf("%s: the Key is empty: use Fields, Metadata, Func or ContextFunc", full)
		case stream && seen&streams == 0:
			return nil, fmt.Errorf("%s is a stream, which this interceptor never sees: use ServerOptions, "+
				"or give it to StreamServerInterceptor", full)
		case !stream && seen&unary == 0:
			return nil, fmt.Errorf("%s is no stream, so this interceptor never sees it: use ServerOptions, "+
				"or give it to UnaryServerInterceptor", full)
		}
		if key.check != nil {
			if err := key.check(d.Input()); err != nil {
				return nil, fmt.Errorf("%s: %w", full, err)
			}
		}
		all[full] = rule{key, typeOf(d.Input())}
	}
	return all, nil
}

func lookup(full string) (protoreflect.MethodDescriptor, error) {
	service, method, ok := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	if !ok || !strings.HasPrefix(full, "/") {
		return nil, fmt.Errorf("%q is no full method name such as /shop.v1.Orders/Ship", full)
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, fmt.Errorf("%s: no service %s is linked into this program: %w; "+
			"check the name, and import its generated code", full, service, err)
	}
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s: %s is no service", full, service)
	}
	m := s.Methods().ByName(protoreflect.Name(method))
	if m == nil {
		return nil, fmt.Errorf("%s: %s has no method %s", full, service, method)
	}
	return m, nil
}

func typeOf(d protoreflect.MessageDescriptor) protoreflect.MessageType {
	if t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil {
		return t
	}
	return dynamicpb.NewMessageType(d)
}
