module leadline.dev/tests/shop

go 1.22
