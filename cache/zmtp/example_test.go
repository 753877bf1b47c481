package zmtp_test

import (
	"fmt"

	"github.com/understudy-ha/understudy/cache/zmtp"
)

// A ROUTER that answers, and a DEALER that asks, protected by CURVE.
func Example() {
	serverKey, clientKey := zmtp.NewCurveKey(), zmtp.NewCurveKey()
	l, err := zmtp.Listen("tcp://127.0.0.1:0", zmtp.Config{
		Kind:     zmtp.ROUTER,
		Security: zmtp.Curve{Secret: serverKey.Secret, Allow: zmtp.AllowKeys(clientKey.Public)},
		Handler: zmtp.Handler{Message: func(c *zmtp.Conn, m zmtp.Message) {
			c.Send(zmtp.Message{[]byte("you said"), m[0]})
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()

	done := make(chan bool)
	d, err := zmtp.Dial(l.Addr(), zmtp.Config{
		Kind:     zmtp.DEALER,
		Security: zmtp.Curve{Secret: clientKey.Secret, ServerKey: serverKey.Public},
		Handler: zmtp.Handler{
			Connected: func(c *zmtp.Conn) { c.Send(zmtp.Message{[]byte("hello")}) },
			Message: func(_ *zmtp.Conn, m zmtp.Message) {
				fmt.Printf("%s: %s\n", m[0], m[1])
				close(done)
			},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	<-done
	// Output: you said: hello
}
