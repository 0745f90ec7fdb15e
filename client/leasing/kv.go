package leasing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// Conditions.
var (
	// ErrClosed: the KV was closed.
	ErrClosed = errors.New("leasing: closed")
	// ErrReserved: a write would change leasing keys.
	ErrReserved = errors.New("leasing: keys below the leasing prefix are not to be written")
	// ErrHeld: the context of a write ended before the holders of its keys had given them up. Nothing was written.
	ErrHeld = errors.New("leasing: a key was not given up in time")
)

// Defaults of the options.
const (
	DefaultTTL     = 10 * time.Second
	DefaultRest    = 2 * time.Second
	DefaultMaxKeys = 10_000
)

// Option shapes a KV.
type Option func(*KV)

// WithTTL sets the time to live of the lease; it is rounded up to seconds. It is the longest time that writes of others wait for
// a holder that has died. Default: DefaultTTL.
func WithTTL(d time.Duration) Option { return func(kv *KV) { kv.ttl = d } }

// WithRest sets for how long a key is left alone that had to be given up, or that another holds. Default: DefaultRest.
func WithRest(d time.Duration) Option { return func(kv *KV) { kv.rest = d } }

// WithMaxKeys bounds how many keys are held; at least 1. For one more a hold drawn at random is given up. Each costs memory for the pair, a
// watch and a goroutine. Default: DefaultMaxKeys.
func WithMaxKeys(n int) Option { return func(kv *KV) { kv.maxKeys = max(n, 1) } }

// KV reads and writes keys as a client does, and answers reads of keys it holds from memory. Any number of goroutines may use
// it. Make it with New and end it with Close.
type KV struct {
	c           *client.Client
	prefix, end string // of leasing keys, and the first key after them
	ttl, rest   time.Duration
	maxKeys     int

	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	ended chan struct{}  // the goroutine run has returned
	wg    sync.WaitGroup // the goroutines that hold and take keys

	mu sync.RWMutex // guards the rest
	// session is what holds are taken on; nil while there is none.
	session *session
	held    map[string]*hold
	// taking are the keys being taken; the channel is closed when that is over.
	taking  map[string]chan struct{}
	resting map[string]bool
	// header is the one with the largest revision seen.
	header *rpcpb.ResponseHeader
}

// New gives a KV whose leasing keys are below prefix, which must not be empty, and which all who use the same keys have to have in
// common. ctx bounds the making alone. Errors are those of [client.Client.Grant].
func New(ctx context.Context, c *client.Client, prefix string, opts ...Option) (*KV, error) {
	if prefix == "" {
		return nil, errors.New("leasing: an empty leasing prefix")
	}
	kv := &KV{
		c: c, prefix: prefix, end: string(client.PrefixEnd([]byte(prefix))),
		ttl: DefaultTTL, rest: DefaultRest, maxKeys: DefaultMaxKeys, ended: make(chan struct{}),
		held: map[string]*hold{}, taking: map[string]chan struct{}{}, resting: map[string]bool{},
		header: new(rpcpb.ResponseHeader),
	}
	for _, o := range opts {
		o(kv)
	}
	kv.ctx, kv.stop = context.WithCancel(context.Background())
	s, err := kv.newSession(ctx)
	if err != nil {
		kv.stop()
		return nil, fmt.Errorf("leasing: granting a lease: %w", err)
	}
	kv.session = s
	go kv.run(s)
	return kv, nil
}

// Close gives up all keys, by revoking the lease, and waits for the goroutines of the KV. If no server can be reached it takes some seconds,
// and the lease ends by itself. Calls that are under way go on. It may be called more than once.
func (kv *KV) Close() {
	kv.stop()
	<-kv.ended
	kv.wg.Wait()
}

// Holds tells whether this KV holds a key, so that reads of it can be answered from memory.
func (kv *KV) Holds(key string) bool {
	kv.mu.RLock()
	defer kv.mu.RUnlock()
	h := kv.held[key]
	return h != nil && h.session.trusted(time.Now())
}

// Get reads one key or several, as [client.Client.Get] does. One key is read from memory if it is held, and taken if it is not. With
// client.WithSerializable it is not taken, but the answer is not outdated if it is held.
func (kv *KV) Get(ctx context.Context, key string, opts ...client.GetOption) (*rpcpb.RangeResponse, error) {
	if kv.ctx.Err() != nil {
		return nil, ErrClosed
	}
	req := client.OpGet(key, opts...).Request().GetRequestRange()
	if r := kv.fromMemory(req); r != nil {
		return r, nil
	}
	if single(req) && !req.Serializable {
		if done := kv.take(key); done != nil {
			select {
			case <-done:
			case <-ctx.Done(): // the read below fails in the words of the client
			}
			if r := kv.fromMemory(req); r != nil {
				return r, nil
			}
		}
	}
	r, err := kv.c.Get(ctx, key, opts...)
	kv.saw(r.GetHeader())
	return r, err
}

// Put writes a key, as [client.Client.Put] does. ErrHeld: its holder did not give it up before ctx ended.
func (kv *KV) Put(ctx context.Context, key, value string, opts ...client.PutOption) (*rpcpb.PutResponse, error) {
	if strings.HasPrefix(key, kv.prefix) {
		return nil, fmt.Errorf("%w: %q", ErrReserved, key)
	}
	r, err := kv.write(ctx, []span{{from: key}}, client.OpPut(key, value, opts...))
	if err != nil {
		return nil, err
	}
	put := r.Responses[0].GetResponsePut()
	put.Header = r.Header
	return put, nil
}

// Delete removes one key or several, as [client.Client.Delete] does, but for leasing keys. ErrHeld: a holder did not give a
// key up before ctx ended.
func (kv *KV) Delete(ctx context.Context, key string, opts ...client.DeleteOption) (*rpcpb.DeleteRangeResponse, error) {
	req := client.OpDelete(key, opts...).Request().GetRequestDeleteRange()
	spans := kv.without(span{string(req.Key), string(req.RangeEnd)})
	if len(spans) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrReserved, req.Key)
	}
	ops := make([]client.Op, len(spans))
	for i, s := range spans {
		var opts []client.DeleteOption
		if s.end != "" {
			opts = append(opts, client.WithRange(s.end))
		}
		if req.PrevKv {
			opts = append(opts, client.WithPrevKV())
		}
		ops[i] = client.OpDelete(s.from, opts...)
	}
	r, err := kv.write(ctx, spans, ops...)
	if err != nil {
		return nil, err
	}
	all := &rpcpb.DeleteRangeResponse{Header: r.Header}
	for _, op := range r.Responses {
		all.Deleted += op.GetResponseDeleteRange().GetDeleted()
		all.PrevKvs = append(all.PrevKvs, op.GetResponseDeleteRange().GetPrevKvs()...)
	}
	return all, nil
}

// saw notes the header of an answer.
func (kv *KV) saw(h *rpcpb.ResponseHeader) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.sawLocked(h)
}

func (kv *KV) sawLocked(h *rpcpb.ResponseHeader) {
	if h.GetRevision() > kv.header.GetRevision() {
		kv.header = proto.CloneOf(h)
	}
}
