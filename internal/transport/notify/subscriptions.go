package notify

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
)

const (
	maxSubscriptions = 256 // of all principals
	maxOwn           = 8   // of one principal
)

// A subscription is a browser that is told of questions of a principal.
type subscription struct {
	Principal     contracts.Principal `json:"principal"`
	Endpoint      string              `json:"endpoint"` // secret
	P256DH        string              `json:"p256dh"`
	Auth          string              `json:"auth"`
	QuietHours    string              `json:"quiet_hours,omitempty"`
	TimeZone      string              `json:"time_zone,omitempty"`
	UnlessLooking bool                `json:"unless_looking,omitempty"`
	Since         string              `json:"since,omitempty"` // older questions are not told
}

// A pushFile is the content of Options.PushFile.
type pushFile struct {
	Key           []byte          `json:"key"` // private key of the server
	Subscriptions []*subscription `json:"subscriptions"`
}

// subscriptions has the browsers of all principals.
type subscriptions struct {
	mu     sync.Mutex // held while the file is written; taken before Notifier.mu
	key    *ecdsa.PrivateKey
	list   []*subscription
	client *http.Client
	tests  *ratelimit.Limiter
}

// openPush reads the stored subscriptions and begins to send to them.
func (n *Notifier) openPush() error {
	local := n.opts.Config.WebPush.Local
	control := checkPublic
	if local {
		control = nil
	}
	n.push.client = newClient(newTransport(control))
	n.push.tests = ratelimit.New(ratelimit.Options{RequestRate: testRate, RequestBurst: testBurst})
	if n.opts.PushFile == "" {
		return nil
	}
	text, err := os.ReadFile(n.opts.PushFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var stored pushFile
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err == nil {
		n.push.key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), stored.Key)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", n.opts.PushFile, err)
	}
	for _, s := range stored.Subscriptions[:min(len(stored.Subscriptions), maxSubscriptions)] {
		l, err := n.pushLane(s)
		if err != nil {
			n.opts.Log.Warn("a stored push subscription is dropped", "principal", s.Principal.ID, "err", err)
			continue
		}
		n.push.list = append(n.push.list, s)
		n.lanes = append(n.lanes, l)
	}
	return nil
}

// WebPush reports whether browsers can subscribe.
func (n *Notifier) WebPush() bool { return n.opts.Config.WebPush != nil }

// errNoPush refuses Web Push that is not configured.
var errNoPush = &contracts.Error{Code: contracts.CodeNotFound, Message: "this server does not send Web Push"}

// PushKey returns what a browser of a principal needs to subscribe. The first call makes
// the key of the server.
func (n *Notifier) PushKey(p contracts.Principal) (*contracts.PushAnswer, error) {
	if n.opts.Config.WebPush == nil {
		return nil, errNoPush
	}
	n.push.mu.Lock()
	defer n.push.mu.Unlock()
	if err := n.ensureKey(); err != nil {
		return nil, err
	}
	public, err := n.push.key.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	answer := &contracts.PushAnswer{
		PublicKey: base64URL.EncodeToString(public), Subscriptions: int64(n.push.count(p)), Browsers: []contracts.PushBrowser{},
	}
	for _, s := range n.push.list {
		if s.Principal.ID == p.ID {
			sum := sha256.Sum256([]byte(s.Endpoint))
			answer.Browsers = append(answer.Browsers, contracts.PushBrowser{
				ID: hex.EncodeToString(sum[:]), QuietHours: s.QuietHours, TimeZone: s.TimeZone, UnlessLooking: s.UnlessLooking,
			})
		}
	}
	return answer, nil
}

// ensureKey makes the key of the server if there is none. The caller holds push.mu.
func (n *Notifier) ensureKey() error {
	if n.push.key != nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	n.push.key = key
	if err := n.savePush(n.push.list); err != nil {
		n.push.key = nil
		return err
	}
	return nil
}

func (s *subscriptions) count(p contracts.Principal) (own int) {
	for _, sub := range s.list {
		if sub.Principal.ID == p.ID {
			own++
		}
	}
	return own
}

// savePush writes the file. The caller holds push.mu.
func (n *Notifier) savePush(list []*subscription) error {
	path := n.opts.PushFile
	if path == "" {
		return nil
	}
	key, err := n.push.key.Bytes()
	if err != nil {
		return err
	}
	text, err := json.Marshal(pushFile{key, list})
	if err == nil {
		err = replaceFile(path, text)
	}
	if err != nil {
		n.opts.Log.Error("push subscriptions cannot be kept", "err", err)
		return &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "the subscription cannot be stored"}
	}
	return nil
}

// Subscribe registers a browser of a principal, or changes its registration.
func (n *Notifier) Subscribe(p contracts.Principal, req *contracts.PushRequest) error {
	if n.opts.Config.WebPush == nil {
		return errNoPush
	}
	s := &subscription{
		Principal: p, Endpoint: req.Endpoint, P256DH: req.Keys.P256DH, Auth: req.Keys.Auth,
		QuietHours: req.QuietHours, TimeZone: req.TimeZone, UnlessLooking: req.UnlessLooking,
		Since: timestamp(time.Now()),
	}
	n.push.mu.Lock()
	defer n.push.mu.Unlock()
	if err := n.ensureKey(); err != nil {
		return err
	}
	l, err := n.pushLane(s)
	if err != nil {
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: err.Error()}
	}
	n.dropDead()
	list := without(n.push.list, p, s.Endpoint)
	own := n.push.count(p) - (len(n.push.list) - len(list))
	if len(list) >= maxSubscriptions || own >= maxOwn {
		return &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many push subscriptions"}
	}
	list = append(list, s)
	if err := n.savePush(list); err != nil {
		return err
	}
	n.push.list = list
	n.mu.Lock()
	defer n.mu.Unlock()
	if before := n.removeLane(p, s.Endpoint); before != nil {
		l.memory = *before
	}
	if !n.closed {
		n.lanes = append(n.lanes, l)
		n.start(l)
	}
	return nil
}

// Limits of the test notifications of a principal: clients name the addresses that they go to.
const (
	testRate  = 0.2 // per second
	testBurst = 6
)

// TestPush sends a test notification to a registered browser, also in its quiet hours. It
// makes one attempt. Only an owner learns why an attempt failed, because the reason may
// name addresses in the network of the server.
func (n *Notifier) TestPush(p contracts.Principal, endpoint string) error {
	n.mu.Lock()
	i := slices.IndexFunc(n.lanes, func(l *lane) bool {
		return l.browser != nil && l.browser.Principal.ID == p.ID && l.browser.Endpoint == endpoint && l.ctx != nil
	})
	if i < 0 {
		n.mu.Unlock()
		return &contracts.Error{Code: contracts.CodeNotFound, Message: "this browser is not registered for notifications"}
	}
	l := n.lanes[i]
	n.mu.Unlock()
	if n.push.tests.Request(p.ID) > 0 {
		return &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many test notifications: try again in a few seconds"}
	}
	_, err := l.send(&notice{ID: "msg_" + rand.Text(), event: "test"}) // about no question
	switch {
	case err == nil:
		return nil
	case errors.As(err, &errGone{}):
		_ = n.Unsubscribe(p, endpoint) // it is logged
		return &contracts.Error{
			Code: contracts.CodeNotFound, Message: "the push service of the browser does not know this registration any more",
		}
	}
	n.opts.Log.Info("a test notification was not accepted", "principal", p.ID, "err", err)
	message := "the push service of the browser did not accept the notification"
	if p.Owner() {
		message += ": " + err.Error()
	}
	return &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: message}
}

// Unsubscribe ends the registration of a browser. It does nothing if there is none.
func (n *Notifier) Unsubscribe(p contracts.Principal, endpoint string) error {
	if n.opts.Config.WebPush == nil {
		return errNoPush
	}
	n.push.mu.Lock()
	defer n.push.mu.Unlock()
	list := without(n.push.list, p, endpoint)
	if len(list) == len(n.push.list) {
		return nil
	}
	if err := n.savePush(list); err != nil {
		return err
	}
	n.push.list = list
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removeLane(p, endpoint)
	return nil
}

func without(list []*subscription, p contracts.Principal, endpoint string) []*subscription {
	return slices.DeleteFunc(slices.Clone(list), func(s *subscription) bool {
		return s.Principal.ID == p.ID && s.Endpoint == endpoint
	})
}

// removeLane ends the lane of a browser. It returns what the lane remembers, or nil if
// there is none. The caller holds mu.
func (n *Notifier) removeLane(p contracts.Principal, endpoint string) (was *memory) {
	n.lanes = slices.DeleteFunc(n.lanes, func(l *lane) bool {
		if l.browser == nil || l.browser.Principal.ID != p.ID || l.browser.Endpoint != endpoint {
			return false
		}
		kept := l.memory
		was, l.memory = &kept, memory{}
		l.stop()
		signal(n.dirty)
		return true
	})
	return was
}

// dropDead removes the subscriptions whose credentials are not valid any more, so that
// they take no room. The file is written with the next change. The caller holds push.mu.
func (n *Notifier) dropDead() {
	n.push.list = slices.DeleteFunc(slices.Clone(n.push.list), func(s *subscription) bool {
		dead := !n.alive(s)
		if dead {
			n.mu.Lock()
			n.removeLane(s.Principal, s.Endpoint)
			n.mu.Unlock()
		}
		return dead
	})
}

// alive reports whether the credential behind a subscription is still valid.
func (n *Notifier) alive(s *subscription) bool {
	return !s.Principal.Expired(time.Now()) && n.opts.Alive(s.Principal)
}

// pushLane returns the lane of a browser, which is not started.
func (n *Notifier) pushLane(s *subscription) (*lane, error) {
	to, err := newPush(s, n.push.key, n.opts.Config.WebPush.Subject, n.opts.Config.WebPush.Local)
	if err != nil {
		return nil, err
	}
	quiet, err := parseQuiet(s.QuietHours, s.TimeZone)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(s.Endpoint)) // the endpoint itself is secret
	r := Receiver{Name: s.Principal.ID + " " + hex.EncodeToString(sum[:4]), Kind: "web_push"}
	if s.UnlessLooking {
		r.UnlessLooking = s.Principal.ID
	}
	l := newLane(lane{Receiver: r, target: to, client: n.push.client, quiet: quiet, sees: s.sees, browser: s})
	l.Since = s.Since
	return l, nil
}

// sees reports whether the principal may answer a question.
func (s *subscription) sees(m *notice) bool {
	p := s.Principal
	return p.Scope == m.Scope && (p.SessionID == "" || p.SessionID == m.Session) &&
		(p.Role != contracts.RoleApprover || m.Kind == contracts.RequestApproval || m.Kind == contracts.RequestUserInput)
}
