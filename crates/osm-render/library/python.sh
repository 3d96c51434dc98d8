python=$(command -v {{os.python.first}} || echo {{os.python.otherwise}})
