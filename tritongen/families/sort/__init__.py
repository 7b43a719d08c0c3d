"""The positions of the elements of rows in their order, and what is taken by them."""
