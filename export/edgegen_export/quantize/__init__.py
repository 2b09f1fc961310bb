"""Quantization: recipes and the arithmetic behind them."""
