package policy

type rule struct{ Route }
