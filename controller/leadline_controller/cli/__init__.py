"""leadline: what people and scripts call. One module per group of commands."""
