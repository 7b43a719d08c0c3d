"""Running sums, products and linear recurrences along an axis."""
