// Command fft is what the pods of DACS' lab run: it computes FFTs for the CPU time that a request
// asks for.
//
//	GET /fft?cpu_ms=900&points=16384&tone=37
//
// The signal is one tone, so the largest bin of its spectrum shows that it was computed. CPU time
// and not a number of FFTs, because what else a machine does changes how long one takes.
package main

import (
	"encoding/json"
	"log"
	"math"
	"math/bits"
	"math/cmplx"
	"net/http"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// transform replaces x, whose length is a power of two, by its spectrum (radix 2, in place).
func transform(x []complex128) {
	shift := 64 - bits.TrailingZeros(uint(len(x)))
	for i := range x {
		if j := int(bits.Reverse64(uint64(i)) >> shift); i < j {
			x[i], x[j] = x[j], x[i]
		}
	}
	for half := 1; half < len(x); half *= 2 {
		step := cmplx.Rect(1, -math.Pi/float64(half))
		for start := 0; start < len(x); start += 2 * half {
			turn := complex(1, 0)
			for i := start; i < start+half; i++ {
				odd := turn * x[i+half]
				x[i], x[i+half] = x[i]+odd, x[i]-odd
				turn *= step
			}
		}
	}
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func answer(w http.ResponseWriter, r *http.Request) {
	number := map[string]int{"cpu_ms": 0, "points": 2, "tone": 0}
	for name := range number {
		if text := r.FormValue(name); text != "" {
			value, err := strconv.Atoi(text)
			if err != nil || value < 0 || name == "points" && (value < 2 || bits.OnesCount(uint(value)) != 1) {
				http.Error(w, name+": expected a whole number, a power of two for points", http.StatusBadRequest)
				return
			}
			number[name] = value
		}
	}
	began, before := time.Now(), cpuSeconds()
	signal, spectrum := make([]complex128, number["points"]), make([]complex128, number["points"])
	for i := range signal {
		signal[i] = cmplx.Rect(1, 2*math.Pi*float64(number["tone"]*i)/float64(len(signal)))
	}
	peak := 0
	count := 0
	for ; cpuSeconds()-before < float64(number["cpu_ms"])/1000; count++ {
		copy(spectrum, signal)
		transform(spectrum)
	}
	for i := range spectrum {
		if cmplx.Abs(spectrum[i]) > cmplx.Abs(spectrum[peak]) {
			peak = i
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"peak": peak, "processing_s": time.Since(began).Seconds(), "cpu_s": cpuSeconds() - before,
		"ffts": count,
	})
}

func main() {
	runtime.GOMAXPROCS(1)
	http.HandleFunc("/fft", answer)
	log.Fatal(http.ListenAndServe(":8080", nil))
}
