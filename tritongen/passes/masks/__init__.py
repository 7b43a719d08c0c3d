"""How the condition of a mask determines which tiles of a score are empty, full or mixed."""
