"""Pure mathematics of compilation; imports nothing else of the package."""
