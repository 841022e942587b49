module leadline.dev/tests/fft

go 1.22
