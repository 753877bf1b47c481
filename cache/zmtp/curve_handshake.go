package zmtp

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"fmt"

	"golang.org/x/crypto/nacl/box"
	"golang.org/x/crypto/nacl/secretbox"
)

// Sizes of the commands' data: what follows the name.
const (
	helloSize    = 200 - len("\x05HELLO")
	helloHead    = 2 + 72 // version and padding, so that the answer is shorter
	welcomeSize  = 168 - len("\x07WELCOME")
	initiateSize = 257 - len("\x08INITIATE") // at least
	cookieSize   = 96
	vouchSize    = 96
)

// In a box, C and S are the long-term keys of client and server, C' and S' those of
// this connection alone; a lower-case letter is the secret half.

// shortNonce is made of a prefix of 16 bytes and a number.
func shortNonce(prefix string, n uint64) *[24]byte {
	var out [24]byte
	copy(out[:], prefix)
	binary.BigEndian.PutUint64(out[16:], n)
	return &out
}

// longNonce is made of a prefix of 8 bytes and 16 bytes, random if not given.
func longNonce(prefix string, rest []byte) *[24]byte {
	var out [24]byte
	copy(out[:], prefix)
	if copy(out[8:], rest) == 0 {
		_, _ = rand.Read(out[8:]) // never fails
	}
	return &out
}

func malformed(command string) error {
	return fmt.Errorf("%w: the CURVE command %s is malformed", ErrProtocol, command)
}

// curveClient is the side that dials: HELLO and INITIATE are its commands.
type curveClient struct {
	Curve
	own   Kind
	key   CurveKey // C', c'
	short [32]byte // C' and S' together
	step  int
	out   result
}

func (h *curveClient) first() []byte {
	h.key = NewCurveKey()
	var zeros [64]byte
	nonce := shortNonce("CurveZMQHELLO---", 1)
	proof := box.Seal(nil, zeros[:], nonce, &h.ServerKey, &h.key.Secret)
	var head [helloHead]byte
	head[0] = 1
	return appendCommand(nil, "HELLO", head[:], h.key.Public[:], nonce[16:], proof)
}

func (h *curveClient) next(command []byte) ([]byte, bool, error) {
	h.step++
	if h.step == 1 {
		data, err := expect("WELCOME", command)
		if err != nil {
			return nil, false, err
		}
		answer, err := h.welcome(data)
		return answer, false, err
	}
	data, err := expect("READY", command)
	if err != nil {
		return nil, false, err
	}
	return nil, true, h.ready(data)
}

// welcome opens Box[S', cookie](S->C') and makes INITIATE.
func (h *curveClient) welcome(data []byte) ([]byte, error) {
	if len(data) != welcomeSize {
		return nil, malformed("WELCOME")
	}
	text, ok := box.Open(nil, data[16:], longNonce("WELCOME-", data[:16]), &h.ServerKey, &h.key.Secret)
	if !ok {
		return nil, fmt.Errorf("%w: WELCOME does not open: the server does not have ServerKey", ErrAccess)
	}
	server, cookie := [32]byte(text), text[32:]
	box.Precompute(&h.short, &server, &h.key.Secret)

	nonce := longNonce("VOUCH---", nil)
	plain := append(append([]byte(nil), h.public[:]...), nonce[8:]...)
	vouched := append(append([]byte(nil), h.key.Public[:]...), h.ServerKey[:]...)
	plain = box.Seal(plain, vouched, nonce, &server, &h.Secret)
	plain = appendMetadata(plain, h.own)
	clear(h.key.Secret[:])

	short := shortNonce("CurveZMQINITIATE", 2)
	sealed := box.SealAfterPrecomputation(nil, plain, short, &h.short)
	return appendCommand(nil, "INITIATE", cookie, short[16:], sealed), nil
}

// ready opens Box[metadata](S'->C').
func (h *curveClient) ready(data []byte) error {
	if len(data) < 8+box.Overhead {
		return malformed("READY")
	}
	n := binary.BigEndian.Uint64(data)
	text, ok := box.OpenAfterPrecomputation(nil, data[8:], shortNonce("CurveZMQREADY---", n), &h.short)
	if !ok {
		return fmt.Errorf("%w: READY does not open", ErrAccess)
	}
	theirs, err := parseMetadata(text)
	if err != nil {
		return err
	}
	h.out = result{theirs, &h.ServerKey, newSealer(false, &h.short, 2, n)}
	clear(h.short[:])
	return fit(h.own, theirs)
}

func (h *curveClient) result() result { return h.out }

// curveServer is the side that listens. Between WELCOME and INITIATE it knows nothing
// but the key of the cookie, which it gave to the client. The key is of this
// connection alone, so that no cookie opens twice.
type curveServer struct {
	Curve
	own    Kind
	cookie [32]byte
	hello  uint64 // nonce of HELLO
	step   int
	out    result
}

func (h *curveServer) first() []byte { return nil }

func (h *curveServer) next(command []byte) ([]byte, bool, error) {
	h.step++
	if h.step == 1 {
		data, err := expect("HELLO", command)
		if err != nil {
			return nil, false, err
		}
		answer, err := h.welcome(data)
		return answer, false, err
	}
	data, err := expect("INITIATE", command)
	if err != nil {
		return nil, false, err
	}
	answer, err := h.ready(data)
	return answer, err == nil, err
}

// welcome checks Box[64 zeros](C'->S) and makes WELCOME.
func (h *curveServer) welcome(data []byte) ([]byte, error) {
	var head [helloHead]byte
	head[0] = 1
	if len(data) != helloSize || !bytes.Equal(data[:helloHead], head[:]) {
		return nil, malformed("HELLO")
	}
	client := [32]byte(data[helloHead:])
	h.hello = binary.BigEndian.Uint64(data[helloHead+32:])
	var zeros [64]byte
	text, ok := box.Open(nil, data[helloHead+40:], shortNonce("CurveZMQHELLO---", h.hello), &client, &h.Secret)
	if !ok || subtle.ConstantTimeCompare(text, zeros[:]) == 0 {
		return nil, fmt.Errorf("%w: HELLO does not open: the client has another ServerKey", ErrAccess)
	}
	short := NewCurveKey()
	_, _ = rand.Read(h.cookie[:])
	nonce := longNonce("COOKIE--", nil)
	plain := append(append([]byte(nil), short.Public[:]...), nonce[8:]...)
	plain = secretbox.Seal(plain, append(append([]byte(nil), client[:]...), short.Secret[:]...), nonce, &h.cookie)
	nonce = longNonce("WELCOME-", nil)
	return appendCommand(nil, "WELCOME", nonce[8:], box.Seal(nil, plain, nonce, &client, &h.Secret)), nil
}

// ready checks Box[C, vouch, metadata](C'->S') and makes READY.
func (h *curveServer) ready(data []byte) ([]byte, error) {
	if len(data) < initiateSize {
		return nil, malformed("INITIATE")
	}
	kept, ok := secretbox.Open(nil, data[16:cookieSize], longNonce("COOKIE--", data[:16]), &h.cookie)
	clear(h.cookie[:])
	if !ok {
		return nil, fmt.Errorf("%w: INITIATE does not have the cookie of this connection", ErrAccess)
	}
	client, secret := [32]byte(kept), [32]byte(kept[32:])
	defer clear(secret[:])
	n := binary.BigEndian.Uint64(data[cookieSize:])
	if n <= h.hello {
		return nil, fmt.Errorf("%w: the nonce of INITIATE is %d after %d", ErrProtocol, n, h.hello)
	}
	var shared [32]byte
	defer clear(shared[:])
	box.Precompute(&shared, &client, &secret)
	text, ok := box.OpenAfterPrecomputation(nil, data[cookieSize+8:], shortNonce("CurveZMQINITIATE", n), &shared)
	if !ok {
		return nil, fmt.Errorf("%w: INITIATE does not open", ErrAccess)
	}
	public := [32]byte(text)
	if err := h.verifyVouch(text[32:32+vouchSize], &public, client[:], &secret); err != nil {
		return nil, err
	}
	if h.Allow == nil || !h.Allow(public) {
		return nil, verdict{fmt.Errorf("%w: the client's key %s is not allowed", ErrAccess, EncodeKey(public)), "400"}
	}
	theirs, err := parseMetadata(text[32+vouchSize:])
	if err != nil {
		return nil, err
	}
	if err := fit(h.own, theirs); err != nil {
		return nil, err
	}
	h.out = result{theirs, &public, newSealer(true, &shared, 1, n)}
	nonce := shortNonce("CurveZMQREADY---", 1)
	own := appendMetadata(nil, h.own)
	return appendCommand(nil, "READY", nonce[16:], box.SealAfterPrecomputation(nil, own, nonce, &shared)), nil
}

// verifyVouch checks Box[C', S](C->S'): who has C says that C' is its key, and that
// it is talking to S.
func (h *curveServer) verifyVouch(vouch []byte, public *[32]byte, client []byte, secret *[32]byte) error {
	text, ok := box.Open(nil, vouch[16:], longNonce("VOUCH---", vouch[:16]), public, secret)
	if !ok || subtle.ConstantTimeCompare(text, append(append([]byte(nil), client...), h.public[:]...)) == 0 {
		return fmt.Errorf("%w: the client's vouch does not hold", ErrAccess)
	}
	return nil
}

func (h *curveServer) result() result { return h.out }
